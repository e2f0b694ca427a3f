//! The file under the name, before and after, in each way that an output may end.

// A test may panic.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use everycall_io::outfile::{Existing, MODE_PRIVATE, MODE_SHARED, OutFile};

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn write(path: &Path, text: &str) {
    let mut out = OutFile::create(path, MODE_SHARED, Existing::default()).unwrap();
    out.write_all(text.as_bytes()).unwrap();
    out.finish().unwrap();
}

#[test]
fn a_file_appears_only_when_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let mut out = OutFile::create(&path, MODE_PRIVATE, Existing::default()).unwrap();
    out.write_all(b"first").unwrap();
    assert!(!path.exists());
    assert!(!out.is_direct());
    out.finish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "first");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);

    write(&path, "second");
    assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    assert_eq!(names(folder.path()), ["out"]);
}

#[test]
fn an_abandoned_output_leaves_only_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    write(&path, "old");
    let mut out = OutFile::create(&path, MODE_SHARED, Existing::default()).unwrap();
    out.write_all(b"half of the new").unwrap();
    drop(out);
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(names(folder.path()), ["out"]);
}

#[test]
fn links_stay_and_their_targets_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    symlink("target", &link).unwrap();
    write(&link, "through a dangling link");
    write(&link, "through a link");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(folder.path().join("target")).unwrap(), "through a link");

    let ring = folder.path().join("ring");
    symlink("ring", &ring).unwrap();
    assert!(OutFile::create(&ring, MODE_SHARED, Existing::default()).is_err());
}

#[test]
fn special_files_are_written_directly() {
    write(Path::new("/dev/null"), "anything");
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || {
            let mut text = String::new();
            fs::File::open(fifo).unwrap().read_to_string(&mut text).unwrap();
            text
        }
    });
    write(&fifo, "through a pipe");
    assert_eq!(reader.join().unwrap(), "through a pipe");
    assert_eq!(names(folder.path()), ["fifo"]);
}

#[test]
fn full_devices_and_closed_pipes_are_distinguished() {
    let mut out = OutFile::create(Path::new("/dev/full"), MODE_SHARED, Existing::default()).unwrap();
    assert_eq!(out.write_all(b"x").unwrap_err().kind(), std::io::ErrorKind::StorageFull);

    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || drop(fs::File::open(fifo).unwrap())
    });
    let mut out = OutFile::create(&fifo, MODE_SHARED, Existing::default()).unwrap();
    reader.join().unwrap();
    assert_eq!(out.write_all(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
}

#[test]
fn obstacles_are_sentences_that_name_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no/such/out");
    let sentence = OutFile::create(&missing, MODE_SHARED, Existing::default()).unwrap_err().to_string();
    assert!(sentence.contains(missing.to_str().unwrap()) && sentence.contains("must exist"), "{sentence}");
    let sentence = OutFile::create(folder.path(), MODE_SHARED, Existing::default()).unwrap_err().to_string();
    assert!(sentence.contains("name a file in it"), "{sentence}");
    assert!(OutFile::create(Path::new(""), MODE_SHARED, Existing::default()).is_err());
    assert!(OutFile::create(Path::new(".."), MODE_SHARED, Existing::default()).is_err());
}

#[test]
fn names_as_long_as_the_file_system_allows_work() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ä".repeat(127));
    write(&path, "long");
    assert_eq!(fs::read_to_string(path).unwrap(), "long");
}

#[test]
fn a_published_output_stays_and_grows_under_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    write(&path, "old");
    let mut out = OutFile::create(&path, MODE_PRIVATE, Existing::default()).unwrap();
    out.write_all(b"head").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    out.publish().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "head");
    out.publish().unwrap();
    out.write_all(b" and more").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "head and more");
    drop(out);
    assert_eq!(fs::read_to_string(&path).unwrap(), "head and more");
    assert_eq!(names(folder.path()), ["out"]);
}

#[test]
fn default_names_follow_no_links() {
    let folder = tempfile::tempdir().unwrap();
    let (victim, link) = (folder.path().join("victim"), folder.path().join("link"));
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, &link).unwrap();
    let error = OutFile::create_by_default(&link, MODE_SHARED, Existing::default()).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
    fs::remove_file(&link).unwrap();
    // One that comes later is replaced.
    for publish in [false, true] {
        let mut out = OutFile::create_by_default(&link, MODE_SHARED, Existing::default()).unwrap();
        symlink(&victim, &link).unwrap();
        if publish {
            out.publish().unwrap();
        }
        out.finish().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
        fs::remove_file(&link).unwrap();
    }
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &link,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let error = OutFile::create_by_default(&link, MODE_SHARED, Existing::default()).unwrap_err();
    assert!(error.to_string().contains("regular file"), "{error}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}
