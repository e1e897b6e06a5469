// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// Reports the TCP connections that programs in a cgroup open, for `pathloom with-paths`. The kernel calls the program
// just before the first packet of a connection leaves. Addresses and ports are then known. How the connection was
// opened (connect, sendto, sendmsg, sendmmsg, io_uring, with or without the C library) makes no difference.
// `opened.rs` contains the same structures, which have no padding.

#include "kernel.h"

enum { NEW, IPV6, MPTCP };

struct opened {
	__u32 kind;
	__u32 src; // IPv4 address, as on the wire
	__u32 dst[4]; // IPv6 address as on the wire; IPv4 addresses are mapped
	__u32 src_port, dst_port; // in the byte order of the machine
};

struct {
	INT(type, BPF_MAP_TYPE_RINGBUF);
	INT(max_entries, 1 << 18);
} openings SEC(".maps");
// Number of connections that were not reported, because the ring was full.
MAP(unreported, BPF_MAP_TYPE_ARRAY, 1, __u32, __u64, 0);

// Whether this socket is a subflow of MPTCP that is not the first of its connection.
static __always_inline int is_further(struct mptcp_sock *connection, struct bpf_sock *socket)
{
	return (void *)connection->first != (void *)socket;
}

SEC("sockops")
int opens(struct bpf_sock_ops *ops)
{
	struct bpf_sock *socket = ops->sk;
	if (ops->op != BPF_SOCK_OPS_TCP_CONNECT_CB || !socket)
		return 1;
	// IPv4 connections of IPv6 sockets have addresses such as ::ffff:10.0.0.1 (RFC 4291, 2.5.5.2).
	__u32 family = ops->family;
	__u32 mapped = family == AF_INET6 && ops->remote_ip6[2] == bpf_htonl(0xffff);
	struct opened opened = {
		.kind = family == AF_INET || mapped ? NEW : IPV6,
		.src = ops->local_ip4,
		.src_port = ops->local_port,
		.dst_port = bpf_ntohl(ops->remote_port),
	};
	// The kernel refuses the program if the compiler merges this with another load, by a pointer into `ops`.
	__u32 remote_ip4 = *(volatile __u32 *)&ops->remote_ip4;
	if (opened.kind == IPV6) {
		opened.dst[0] = ops->remote_ip6[0];
		opened.dst[1] = ops->remote_ip6[1];
		opened.dst[2] = ops->remote_ip6[2];
		opened.dst[3] = ops->remote_ip6[3];
	} else {
		opened.dst[2] = bpf_htonl(0xffff);
		opened.dst[3] = remote_ip4;
	}
	struct mptcp_sock *connection = bpf_skc_to_mptcp_sock(socket);
	if (connection) {
		if (is_further(connection, socket))
			return 1;
		opened.kind = MPTCP;
	}
	if (bpf_ringbuf_output(&openings, &opened, sizeof(opened), 0)) {
		__u32 zero = 0;
		__u64 *count = bpf_map_lookup_elem(&unreported, &zero);
		if (count)
			__sync_fetch_and_add(count, 1);
	}
	return 1;
}

// Only programs under the kernel's licence may read its structures. The kernel has no name for "GPL or Apache".
char opened_license[] SEC("license") = "GPL";
