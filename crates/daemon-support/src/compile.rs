//! For build scripts: compiles a BPF program with clang.
//!
//! BPF programs do not depend on the architecture, so a cross build compiles them in the same way. Without clang, the
//! crate is still built, with an empty object. [`crate::pins::Pins::load`] then reports that there is no program.
//! With `PATHLOOM_BPF=required` in the environment, as for packages, the build fails instead.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Names of the compiler in Debian.
const COMPILERS: [&str; 7] = ["clang", "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang-14"];
/// Directory of `kernel.h`, which the programs share.
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bpf");

/// Compiles `source` (`bpf/NAME.bpf.c`) to `NAME.bpf.o` in the output directory of the build. `daemon` is the name in
/// the warning.
///
/// # Panics
/// If the source cannot be compiled, or clang is missing but required. In this way a build script fails.
pub fn compile(daemon: &str, source: &str) {
    println!("cargo:rerun-if-changed={source}");
    println!("cargo:rerun-if-changed={HEADERS}/kernel.h");
    for variable in ["PATHLOOM_CLANG", "PATHLOOM_BPF", "PATH"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let name = Path::new(source).with_extension("o");
    let object = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join(name.file_name().unwrap_or_default());
    let named = env::var("PATHLOOM_CLANG").ok();
    let Some(compiler) = named.as_deref().into_iter().chain(COMPILERS).find(|name| runs(name)) else {
        let required = env::var("PATHLOOM_BPF").is_ok_and(|wanted| wanted == "required");
        assert!(!required, "PATHLOOM_BPF=required, and clang is missing (apt-get install clang)");
        // An empty object means that there is none.
        fs::write(&object, b"").unwrap_or_else(|problem| panic!("{}: {problem}", object.display()));
        println!("cargo:warning={daemon} is built without its BPF programs: clang is missing (apt-get install clang)");
        return;
    };
    let done = Command::new(compiler)
        .args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", "-I", HEADERS])
        .args(["-I/usr/include/x86_64-linux-gnu", "-I/usr/include/aarch64-linux-gnu"])
        .args(["-c", source, "-o"])
        .arg(&object)
        .status();
    assert!(done.is_ok_and(|status| status.success()), "{compiler} cannot compile {source}");
}

fn runs(compiler: &str) -> bool {
    Command::new(compiler).arg("--version").output().is_ok_and(|done| done.status.success())
}
