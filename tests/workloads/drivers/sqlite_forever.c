// sqlite_forever FOLDER THREADS: each thread works on a database of its own in FOLDER, with a write-ahead log, until somebody ends the
// program. A journal of all calls is kept (tests/oracle/journal.h).
#include "../../oracle/journal.h"

#include "sqlite3.h"
#include <pthread.h>
#include <stdio.h>

enum { THREADS_MAX = 8 };

static const char *folder;

static void check(sqlite3 *db, int status) {
    if (status == SQLITE_OK || status == SQLITE_ROW || status == SQLITE_DONE) return;
    fprintf(stderr, "sqlite_forever: %s\n", sqlite3_errmsg(db));
    abort();
}

static void run(sqlite3 *db, const char *sql, uint64_t value) {
    sqlite3_stmt *statement;
    int status;
    check(db, sqlite3_prepare_v2(db, sql, -1, &statement, 0));
    if (sqlite3_bind_parameter_count(statement) > 0) sqlite3_bind_int64(statement, 1, (sqlite3_int64)value);
    while ((status = sqlite3_step(statement)) == SQLITE_ROW) {}
    check(db, status);
    check(db, sqlite3_finalize(statement));
}

static void *work(void *argument) {
    long number = (long)argument;
    uint64_t random = 88172645463325252u + (uint64_t)number;
    char path[4096];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/%ld.db", folder, number);
    check(0, sqlite3_open(path, &db));
    run(db, "pragma journal_mode = wal", 0);
    run(db, "pragma synchronous = off", 0);
    run(db, "create table if not exists t(id integer primary key, grp int, name text)", 0);
    run(db, "create index if not exists t_grp on t(grp)", 0);
    for (;;) {
        run(db, "begin", 0);
        for (int i = 0; i < 20; i++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            run(db, "insert into t(grp, name) values(?1 % 97, 'name' || hex(?1))", random >> 1);
        }
        run(db, "update t set name = name || 'x' where grp = ?1 % 97", random >> 2);
        run(db, "delete from t where grp = ?1 % 89 and length(name) > 20", random >> 3);
        run(db, random % 5 ? "commit" : "rollback", 0);
        run(db, "select grp, count(*), max(name) from t where grp > ?1 % 97 group by grp order by 2", random >> 4);
    }
    return 0;
}

int main(int argc, char **argv) {
    int count = argc > 2 ? atoi(argv[2]) : 0;
    if (count < 1 || count > THREADS_MAX) return 2;
    folder = argv[1];
    sqlite3_initialize();
    pthread_t threads[THREADS_MAX];
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], 0, work, (void *)i)) abort();
    for (int i = 0; i < count; i++) pthread_join(threads[i], 0);
    return 0;
}
