//! Compiles the BPF programs. Without them the agent reads the kernel's socket list, and neither paces nor holds.

fn main() {
    pathloom_daemon::compile::compile("pathloom-hostd", "bpf/hostd.bpf.c");
}
