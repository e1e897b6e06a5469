//! `pathloom-controller bench` becomes the program beside it that loads controllers, which is in no way part of it.

use std::path::Path;
use std::process::Command;

#[test]
fn the_bench_command_becomes_the_bench_program_beside_it() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-command-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let program = directory.join("pathloom-controller");
    // Links, because a program that was just written may be busy while other tests start processes.
    std::fs::hard_link(env!("CARGO_BIN_EXE_pathloom-controller"), &program).unwrap();
    let said = || {
        let done = Command::new(&program).args(["bench", "--speed", "1"]).output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let without = said();
    assert!(without.0 == Some(2) && without.2.contains("`make build` puts it there"), "{without:?}");
    std::os::unix::fs::symlink("/bin/echo", directory.join("pathloom-controller-bench")).unwrap();
    assert_eq!(said(), (Some(0), "--speed 1\n".into(), String::new()));
    std::fs::remove_dir_all(&directory).unwrap();
}
