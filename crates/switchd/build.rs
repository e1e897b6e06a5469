//! Compiles the BPF program. Without it, the switch prints an error and does not start.

fn main() {
    pathloom_daemon_support::compile::compile("pathloom-switch", "bpf/switch.bpf.c");
}
