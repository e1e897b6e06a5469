//! Compiles the BPF programs. Without them, the agent reads the kernel's socket list, and cannot pace or hold flows.

fn main() {
    pathloom_daemon_support::compile::compile("pathloom-hostd", "bpf/hostd.bpf.c");
}
