// sqlite ROWS: a table in memory, filled, queried, changed and trimmed.
#include "region.h"
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>

static sqlite3 *db;

static void check(int status) {
    if (status == SQLITE_OK || status == SQLITE_ROW || status == SQLITE_DONE) return;
    fprintf(stderr, "sqlite: %s\n", sqlite3_errmsg(db));
    exit(1);
}

static void query(const char *sql) {
    sqlite3_stmt *statement;
    int status;
    check(sqlite3_prepare_v2(db, sql, -1, &statement, 0));
    while ((status = sqlite3_step(statement)) == SQLITE_ROW) (void)sqlite3_column_int64(statement, 0);
    check(status);
    check(sqlite3_finalize(statement));
}

static void fill(int rows) {
    sqlite3_stmt *statement;
    unsigned random = 2463534242u;
    query("create table t(id integer primary key, grp int, name text, val real)");
    query("create index t_grp on t(grp)");
    query("begin");
    check(sqlite3_prepare_v2(db, "insert into t(grp, name, val) values(?, ?, ?)", -1, &statement, 0));
    for (int i = 0; i < rows; i++) {
        char name[32];
        random ^= random << 13, random ^= random >> 17, random ^= random << 5;
        int length = snprintf(name, sizeof name, "name%u-%d", random % 1000, i);
        sqlite3_bind_int(statement, 1, (int)(random % 97));
        sqlite3_bind_text(statement, 2, name, length, SQLITE_TRANSIENT);
        sqlite3_bind_double(statement, 3, random / 7.0);
        check(sqlite3_step(statement));
        sqlite3_reset(statement);
    }
    check(sqlite3_finalize(statement));
    query("commit");
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    sqlite3_initialize();
    region_begin();
    check(sqlite3_open(":memory:", &db));
    fill(atoi(argv[1]));
    query("select grp, count(*), avg(val) from t group by grp order by 3 desc");
    query("select count(*) from t where name like '%77-1%'");
    query("select a.id from t a join t b on a.grp = b.grp and b.id < 20 where a.val > b.val limit 3000");
    query("select upper(name) || length(name) from t order by name desc limit 1000");
    query("update t set val = val * 1.5 where grp % 3 = 0");
    query("delete from t where grp % 5 = 1");
    check(sqlite3_close(db));
    region_end();
    return 0;
}
