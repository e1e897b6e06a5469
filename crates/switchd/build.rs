//! Compiles the BPF program. Without it, the switch prints an error and does not start.

fn main() {
    pathloom_daemon::compile::compile("pathloom-switch", "bpf/switch.bpf.c");
}
