//! Compiles the BPF programs. Without them, the agent reads the kernel's socket list, and cannot pace or hold flows.
//! `pathloom with-paths` then serves only programs that load its library.

fn main() {
    for source in ["bpf/hostd.bpf.c", "bpf/opened.bpf.c"] {
        pathloom_daemon_support::compile::compile("pathloom-hostd", source);
    }
}
