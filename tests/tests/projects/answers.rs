//! "Which request was it?", asked of programs as their distribution built them, and of a server in
//! Rust: the commands of docs/reference/arguments.md.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use everycall_tests::{Place, debian, everycall, programs, successful, wait};

/// Starts `everycall record` with these options and this command, which finds its libraries in
/// `files`.
fn record(place: &Place, files: &Path, options: &[&str], command: &[&str]) -> Child {
    let mut record = place.command(everycall());
    record.args(["record", "-q", "-o", "trace.ect"]).args(options).arg("--").args(command);
    let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|path| files.join(path));
    let libraries = std::env::join_paths(libraries).unwrap();
    record.env("LD_LIBRARY_PATH", libraries).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// The first column and the last one of `report --by VALUE`: how many calls had which value.
fn by_value(place: &Place, options: &[&str], value: &str) -> Vec<(u64, String)> {
    let mut report = place.command(everycall());
    report.args(["report", "--by", value]).args(options).args(["-f", "json", "trace.ect"]);
    let report: serde_json::Value = serde_json::from_str(&successful(&mut report)).unwrap();
    let rows = report["rows"].as_array().unwrap_or_else(|| panic!("{report}"));
    let row = |row: &serde_json::Value| {
        (row["calls"].as_u64().unwrap(), row["value"].as_str().unwrap_or_else(|| panic!("{row}")).to_owned())
    };
    rows.iter().map(row).collect()
}

/// Connects as soon as the server listens.
fn connected(socket: &Path, server: &mut Child) -> UnixStream {
    let mut stream = None;
    wait::until("the server listens", || {
        assert!(server.try_wait().unwrap().is_none(), "the server has ended");
        stream = UnixStream::connect(socket).ok();
        stream.is_some()
    });
    stream.unwrap()
}

#[test]
fn which_keys_made_get_slow() {
    let Some(files) = debian::unpacked(&["redis-tools", "libatomic1", "libjemalloc2", "liblzf1"]) else {
        return;
    };
    let place = Place::new("redis");
    // The program of this name is the same file.
    symlink(files.join("usr/bin/redis-check-rdb"), place.file("redis-server")).unwrap();
    let options = ["--only", "*Command", "--args", "getCommand(key = arg1:ptr[10][1][1]:str)"];
    let command =
        ["./redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", "", "--logfile", "log"];
    let mut server = record(&place, &files, &options, &command);
    let mut client = BufReader::new(connected(&place.file("redis.sock"), &mut server));
    let mut ask = |command: &str, lines: usize| {
        client.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        for _ in 0..lines {
            client.read_line(&mut answer).unwrap();
        }
        answer
    };
    // Long after the others, as its value is long.
    assert_eq!(ask(&format!("set large {}", "x".repeat(60_000)), 1), "+OK\r\n");
    for (name, count) in [("a", 1), ("b", 2), ("c", 3)] {
        assert_eq!(ask(&format!("set key:{name} {name}"), 1), "+OK\r\n");
        for _ in 0..count {
            assert_eq!(ask(&format!("get key:{name}"), 2), format!("$1\r\n{name}\r\n"));
        }
    }
    ask("get large", 2);
    client.get_mut().write_all(b"shutdown nosave\r\n").unwrap();
    assert!(server.wait().unwrap().success());
    let mut rows = by_value(&place, &["--tails"], "getCommand(key)");
    rows.sort();
    let expected = [(1, "key:a"), (1, "large"), (2, "key:b"), (3, "key:c")];
    assert_eq!(rows, expected.map(|(count, key)| (count, format!("\"{key}\""))));
}

#[test]
fn which_files_nginx_opened() {
    let Some(files) = debian::unpacked(&["nginx", "libpcre2-8-0", "libssl3", "zlib1g", "libcrypt1"]) else {
        return;
    };
    let place = Place::new("nginx");
    let folder = place.path().display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|name| format!("{name}_temp_path {folder}/{name};")).concat();
    place.write(
        "nginx.conf",
        &format!(
            "daemon off; master_process off; pid {folder}/pid; error_log stderr; events {{}} \
             http {{ access_log off; {temporary} server {{ listen unix:{folder}/sock; root {folder}; }} }}"
        ),
    );
    place.write("one.txt", "first");
    place.write("two.txt", "second");
    let program = files.join("usr/sbin/nginx").display().to_string();
    let conf = place.file("nginx.conf").display().to_string();
    let options = [
        "--only",
        "ngx_http_*",
        "--only",
        "ngx_open_cached_file",
        "--args",
        "ngx_open_cached_file(path = arg2:ptr[1]:str)",
    ];
    let mut server = record(&place, &files, &options, &[&program, "-e", "stderr", "-c", &conf]);
    for path in ["one.txt", "two.txt", "two.txt", "missing"] {
        let mut stream = connected(&place.file("sock"), &mut server);
        write!(stream, "GET /{path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let expected = if path == "missing" { "404 Not Found" } else { "200 OK" };
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{answer}");
    }
    let pid = std::fs::read_to_string(place.file("pid")).unwrap();
    successful(Command::new("kill").args(["-QUIT", pid.trim()]));
    assert!(server.wait().unwrap().success());
    let mut rows = by_value(&place, &[], "ngx_open_cached_file(path)");
    rows.sort();
    let expected = [(1, "missing"), (1, "one.txt"), (2, "two.txt")];
    assert_eq!(rows, expected.map(|(count, path)| (count, format!("\"{folder}/{path}\""))));
}

#[test]
fn which_statements_sqlite_prepared() {
    let Some(files) = debian::unpacked(&["sqlite3", "libsqlite3-0", "libreadline8"]) else { return };
    let place = Place::new("sqlite-shell");
    let query = "create table t(a); insert into t values (41); select a + 1 from t;";
    let program = files.join("usr/bin/sqlite3").display().to_string();
    let options = [
        "--modules",
        "libsqlite3*",
        "--only",
        "sqlite3_prepare_v2",
        "--args",
        "sqlite3_prepare_v2(sql = arg2:str)",
    ];
    let shell = record(&place, &files, &options, &[&program, ":memory:", query]);
    let output = shell.wait_with_output().unwrap();
    assert_eq!((output.status.success(), &output.stdout[..]), (true, &b"42\n"[..]));
    let rows = by_value(&place, &["--limit", "0"], "sqlite3_prepare_v2(sql)");
    for start in ["create table t(a);", "insert into t values (41);", "select a + 1 from t;"] {
        let count = rows.iter().filter(|(_, sql)| sql.trim_start_matches('"').starts_with(start)).count();
        assert_eq!(count, 1, "{start}: {rows:?}");
    }
}

#[test]
fn which_routes_a_server_in_rust_answered_slowly() {
    let place = Place::new("routes");
    let mut rustc = place.command("rustc");
    rustc.args(["--edition", "2024", "-O", "-g", "-o", "routes"]).arg(programs().join("routes.rs"));
    successful(&mut rustc);
    let options = ["--args", "*respond(path)"];
    let mut server = record(&place, place.path(), &options, &["./routes", "4"]);
    let mut address = String::new();
    let mut printed = BufReader::new(server.stdout.take().unwrap());
    printed.read_line(&mut address).unwrap();
    for path in ["/", "/report/7", "/", "/login"] {
        let mut stream = TcpStream::connect(address.trim()).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with(&format!("this is {path}\n")), "{answer}");
    }
    assert!(server.wait().unwrap().success());
    let rows = by_value(&place, &[], "*respond(path)");
    assert_eq!(rows[0], (1, "\"/report/7\"".to_owned()), "the slowest comes first: {rows:?}");
    let mut rest = rows[1..].to_vec();
    rest.sort();
    assert_eq!(rest, [(1, "\"/login\"".to_owned()), (2, "\"/\"".to_owned())]);
}
