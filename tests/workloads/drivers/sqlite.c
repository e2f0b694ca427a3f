// sqlite ROWS THREADS: each thread fills, queries, changes and trims a table in a memory database of its own, and
// a checksum of every row that it saw is printed. Threads share nothing, so calls per thread are always the same.
#define _GNU_SOURCE
#include "sqlite3.h"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS_MAX = 16 };

static int rows;

struct job {
    pthread_t thread;
    unsigned id;
    uint64_t sum;
    sqlite3 *db;
};

static void check(struct job *job, int status) {
    if (status == SQLITE_OK || status == SQLITE_ROW || status == SQLITE_DONE) return;
    fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(job->db));
    exit(1);
}

static void add_text(struct job *job, const unsigned char *text) {
    while (text && *text) job->sum = (job->sum ^ *text++) * 1099511628211u;
}

static void query(struct job *job, const char *sql) {
    sqlite3_stmt *statement;
    int status;
    check(job, sqlite3_prepare_v2(job->db, sql, -1, &statement, 0));
    while ((status = sqlite3_step(statement)) == SQLITE_ROW)
        for (int i = 0; i < sqlite3_column_count(statement); i++) add_text(job, sqlite3_column_text(statement, i));
    check(job, status);
    check(job, sqlite3_finalize(statement));
}

static void fill(struct job *job) {
    sqlite3_stmt *statement;
    uint64_t random = 88172645463325252u + job->id;
    query(job, "create table t(id integer primary key, grp int, name text, val real)");
    query(job, "create index t_grp on t(grp)");
    query(job, "begin");
    check(job, sqlite3_prepare_v2(job->db, "insert into t(grp, name, val) values(?, ?, ?)", -1, &statement, 0));
    for (int i = 0; i < rows; i++) {
        char name[32];
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        int length = snprintf(name, sizeof name, "name%u-%d", (unsigned)(random % 1000), i);
        sqlite3_bind_int(statement, 1, (int)(random % 97));
        sqlite3_bind_text(statement, 2, name, length, SQLITE_TRANSIENT);
        sqlite3_bind_double(statement, 3, (double)(random % 100000) / 7.0);
        check(job, sqlite3_step(statement));
        sqlite3_reset(statement);
    }
    check(job, sqlite3_finalize(statement));
    query(job, "commit");
}

static void *work(void *argument) {
    struct job *job = argument;
    check(job, sqlite3_open(":memory:", &job->db));
    fill(job);
    query(job, "select grp, count(*), avg(val) from t group by grp order by 3 desc");
    query(job, "select count(*) from t where name like '%77-1%'");
    query(job, "select a.id from t a join t b on a.grp = b.grp and b.id < 20 where a.val > b.val limit 300");
    query(job, "select upper(name) || length(name) from t order by name desc limit 100");
    query(job, "update t set val = val * 1.5 where grp % 3 = 0");
    query(job, "delete from t where grp % 5 = 1");
    query(job, "with recursive c(x) as (select 1 union all select x + 1 from c where x < 200) select sum(x) from c");
    query(job, "select * from t order by val, id");
    check(job, sqlite3_close(job->db));
    return 0;
}

int main(int argc, char **argv) {
    int threads = argc > 2 ? atoi(argv[2]) : 0;
    if (threads < 1 || threads > THREADS_MAX) return 2;
    rows = atoi(argv[1]);
    static struct job jobs[THREADS_MAX];
    sqlite3_initialize();
    for (int i = 0; i < threads; i++) {
        jobs[i].id = (unsigned)i;
        if (pthread_create(&jobs[i].thread, 0, work, &jobs[i])) return 1;
        // They differ in name and in work, so that counts of one can't pass for those of another.
        char name[16];
        snprintf(name, sizeof name, "sqlite-%d", i);
        pthread_setname_np(jobs[i].thread, name);
    }
    for (int i = 0; i < threads; i++) pthread_join(jobs[i].thread, 0);
    for (int i = 0; i < threads; i++) printf("thread %d: %016llx\n", i, (unsigned long long)jobs[i].sum);
    return sqlite3_shutdown();
}
