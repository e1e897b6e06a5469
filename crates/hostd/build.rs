//! Compiles the BPF programs by clang. Without clang the crate is built all the same, and the agent says that it has
//! none.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// Names of the compiler, as Debian has them.
const COMPILERS: [&str; 7] = ["clang", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14"];

fn main() {
    println!("cargo:rerun-if-changed=bpf/hostd.bpf.c");
    println!("cargo:rerun-if-changed=bpf/kernel.h");
    println!("cargo:rerun-if-env-changed=PATHLOOM_CLANG");
    println!("cargo:rerun-if-env-changed=PATHLOOM_BPF");
    println!("cargo:rerun-if-env-changed=PATH");
    let object = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("hostd.bpf.o");
    let named = env::var("PATHLOOM_CLANG").ok();
    let found = named.as_deref().into_iter().chain(COMPILERS).find(|name| runs(name));
    let Some(compiler) = found else {
        let required = env::var("PATHLOOM_BPF").is_ok_and(|wanted| wanted == "required");
        assert!(!required, "PATHLOOM_BPF=required, and clang is missing (apt-get install clang)");
        // An empty object stands for none.
        fs::write(&object, b"").unwrap_or_else(|problem| panic!("{}: {problem}", object.display()));
        println!(
            "cargo:warning=pathloom-hostd is built without its BPF programs: clang is missing (apt-get install clang)"
        );
        return;
    };
    let done = Command::new(compiler)
        .args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3"])
        .args(["-I/usr/include/x86_64-linux-gnu", "-I/usr/include/aarch64-linux-gnu"])
        .args(["-c", "bpf/hostd.bpf.c", "-o"])
        .arg(&object)
        .status();
    assert!(done.is_ok_and(|status| status.success()), "{compiler} cannot compile bpf/hostd.bpf.c");
}

fn runs(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|done| done.status.success())
}
