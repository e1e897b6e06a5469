// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The kernel part of the host agent: finds long TCP connections, labels them, paces them, and holds their data.
//
// `connections` runs at events of sockets in a cgroup, `hold` at each packet that such a socket sends, and `sweep` when
// the agent visits the sockets of a namespace. All state is in the maps below. `layout.rs` contains the same
// structures, which have no padding. Connections are identified by addresses and ports, as in the controller.

#include "kernel.h"

#define MAX_PREFIXES 16
#define NO_PACE 0xffffffffu
#define PASS_NS 5000000000ull // minimum time between two packets of a held connection that pass
#define LAST_NS (PASS_NS + 500000000) // length of the last part of a lease, in which TCP retries often

struct key {
	__u32 src, dst;         // as on the wire
	__u16 src_port, dst_port; // in the byte order of the machine
};

struct place {
	__u64 netns;
	__u32 address;
	__u32 zero;
};

struct prefix {
	__u32 address, mask;
};

struct settings {
	__u64 threshold_bytes;
	__u64 alive_until_ns; // paces and holds are valid until then; the agent extends it
	__u32 tos;            // the label; 0: none
	__u32 orders;         // whether there are orders at all
	__u32 holds;          // whether any of them is a hold
	__u32 prefix_count;
	struct prefix prefixes[MAX_PREFIXES];
};

struct order {
	__u64 hold_until_ns;
	__u32 pace; // payload bytes per second, or NO_PACE
	__u32 kick; // whether the next sweep makes the connection send waiting data
};

struct flow {
	__u64 cookie;
	__u64 netns;
	__u64 bytes;
	__u32 mss;
	__u32 labelled;
};

struct event {
	struct key key;
	__u32 closed;
	struct flow flow;
};

enum { OPENED, CLOSED, LONG, UNTRACKED, UNTOLD, HELD_PACKETS, COUNTERS };

MAP(settings_map, BPF_MAP_TYPE_ARRAY, 1, __u32, struct settings, 0);
MAP(places, BPF_MAP_TYPE_HASH, 4096, struct place, __u32, 0);
MAP(orders, BPF_MAP_TYPE_HASH, 65536, struct key, struct order, BPF_F_NO_PREALLOC);
// The limit that a socket had before its pace. It is restored when the pace ends. Only these programs write this map,
// and only the agent adds entries to `orders`.
MAP(limits, BPF_MAP_TYPE_HASH, 65536, struct key, __u32, BPF_F_NO_PREALLOC);
MAP(flows, BPF_MAP_TYPE_HASH, 65536, struct key, struct flow, BPF_F_NO_PREALLOC);
// Time at which a packet of a held connection last passed, or at which the first packet was held.
MAP(passed, BPF_MAP_TYPE_LRU_HASH, 8192, struct key, __u64, 0);
MAP(counters, BPF_MAP_TYPE_PERCPU_ARRAY, COUNTERS, __u32, __u64, 0);
// The newest election of a controller of which the agent knows. No program reads it; the next agent does.
MAP(election, BPF_MAP_TYPE_ARRAY, 1, __u32, __u64, 0);

struct {
	INT(type, BPF_MAP_TYPE_RINGBUF);
	INT(max_entries, 1 << 20);
} events SEC(".maps");

static __always_inline struct settings *settings(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&settings_map, &zero);
}

static __always_inline void count(__u32 which)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &which);
	if (value)
		*value += 1;
}

static __always_inline int leads_into_fabric(const struct settings *set, __u32 address)
{
#pragma unroll
	for (int i = 0; i < MAX_PREFIXES; i++)
		if (i < set->prefix_count && (address & set->prefixes[i].mask) == set->prefixes[i].address)
			return 1;
	return 0;
}

static __always_inline int is_place(__u64 netns, __u32 address)
{
	struct place place = { .netns = netns, .address = address };
	return bpf_map_lookup_elem(&places, &place) != 0;
}

// Whether this is a connection from a host of the agent into the fabric, and not to the same address.
static __always_inline int ours(struct settings *set, __u64 netns, const struct key *key)
{
	return key->src != key->dst && is_place(netns, key->src) && leads_into_fabric(set, key->dst);
}

static __always_inline __u32 wanted_pace(const struct settings *set, const struct order *order)
{
	return set->alive_until_ns > bpf_ktime_get_ns() ? order->pace : NO_PACE;
}

static __always_inline void apply_pace(void *socket, const struct settings *set, const struct key *key,
				       const struct order *order)
{
	__u32 now = 0, wanted = wanted_pace(set, order);
	__u32 *limit = bpf_map_lookup_elem(&limits, key);
	if (wanted == NO_PACE && !limit)
		return;
	if (bpf_getsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &now, sizeof(now)))
		return;
	if (!limit && bpf_map_update_elem(&limits, key, &now, BPF_NOEXIST))
		return;
	__u32 most = limit ? *limit : now;
	if (wanted > most)
		wanted = most;
	if (wanted != now)
		bpf_setsockopt(socket, SOL_SOCKET, SO_MAX_PACING_RATE, &wanted, sizeof(wanted));
}

static __always_inline int label(struct bpf_sock_ops *ops, __u32 tos)
{
	__u32 now = 0;
	// A label that the application has set stays. The kernel refuses this call for IPv4 on an IPv6 socket. The agent
	// then sets the label.
	if (!tos || bpf_getsockopt(ops, SOL_IP, IP_TOS, &now, sizeof(now)))
		return 0;
	if (now >> 2)
		return 1;
	return bpf_setsockopt(ops, SOL_IP, IP_TOS, &tos, sizeof(tos)) == 0;
}

static __always_inline void tell(const struct key *key, const struct flow *flow, __u32 closed)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		// When this counter increases, the agent reads all flows.
		count(UNTOLD);
		return;
	}
	event->key = *key;
	event->closed = closed;
	event->flow = *flow;
	bpf_ringbuf_submit(event, 0);
}

static __always_inline void became_long(struct bpf_sock_ops *ops, const struct settings *set, const struct key *key)
{
	struct flow flow = {
		.cookie = bpf_get_socket_cookie(ops),
		.netns = bpf_get_netns_cookie(ops),
		.bytes = ops->bytes_acked,
		.mss = ops->mss_cache,
	};
	if (bpf_map_update_elem(&flows, key, &flow, BPF_NOEXIST)) {
		count(UNTRACKED);
		return;
	}
	flow.labelled = label(ops, set->tos);
	bpf_map_update_elem(&flows, key, &flow, BPF_EXIST);
	count(LONG);
	tell(key, &flow, 0);
}

static __always_inline void acknowledged(struct bpf_sock_ops *ops, const struct settings *set, const struct key *key)
{
	struct bpf_sock *common = ops->sk;
	struct tcp_sock *tcp = common ? bpf_skc_to_tcp_sock(common) : 0;
	// Bytes in the socket show that a flow is long before the network has carried them (Curtis et al., Mahout, INFOCOM
	// 2011, section III.A).
	__u32 waiting = tcp ? tcp->write_seq - tcp->snd_una : 0;
	if (ops->bytes_acked + waiting >= set->threshold_bytes) {
		struct flow *flow = bpf_map_lookup_elem(&flows, key);
		if (!flow)
			became_long(ops, set, key);
	}
	if (set->orders) {
		struct order *order = bpf_map_lookup_elem(&orders, key);
		if (order)
			apply_pace(ops, set, key, order);
	}
}

static __always_inline void closed(struct bpf_sock_ops *ops, const struct key *key)
{
	count(CLOSED);
	struct flow *found = bpf_map_lookup_elem(&flows, key);
	if (found) {
		struct flow flow = *found;
		flow.bytes = ops->bytes_acked;
		bpf_map_delete_elem(&flows, key);
		tell(key, &flow, 1);
	}
	bpf_map_delete_elem(&orders, key);
	bpf_map_delete_elem(&limits, key);
}

SEC("sockops")
int connections(struct bpf_sock_ops *ops)
{
	__u32 op = ops->op;
	if (op != BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB && op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB &&
	    op != BPF_SOCK_OPS_RTT_CB && op != BPF_SOCK_OPS_STATE_CB)
		return 1;
	// A server that listens on IPv6 has IPv4 connections on IPv6 sockets (RFC 4291, 2.5.5.2).
	if (ops->family != AF_INET && (ops->family != AF_INET6 || ops->remote_ip6[2] != bpf_htonl(0xffff)))
		return 1;
	struct settings *set = settings();
	if (!set)
		return 1;
	struct key key = {
		.src = ops->local_ip4,
		.dst = ops->remote_ip4,
		.src_port = ops->local_port,
		.dst_port = bpf_ntohl(ops->remote_port),
	};
	switch (op) {
	case BPF_SOCK_OPS_RTT_CB:
		acknowledged(ops, set, &key);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		if (ops->args[1] == BPF_TCP_CLOSE)
			closed(ops, &key);
		break;
	default:
		if (!ours(set, bpf_get_netns_cookie(ops), &key))
			break;
		count(OPENED);
		bpf_sock_ops_cb_flags_set(ops, BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG);
	}
	return 1;
}

// If no packet passes, TCP doubles its retransmission time-out, and gives up after some retries. So one packet of a
// held connection passes from time to time. This resets the time-out, and TCP retries after PASS_NS at the latest. In
// the last part of the lease, TCP is told that the device is congested, and then retries every half second. So the
// connection sends soon after the end of its lease, even if no agent is there to wake it.
static __always_inline int may_pass(const struct key *key, __u64 now)
{
	__u64 *last = bpf_map_lookup_elem(&passed, key);
	// A very old entry belongs to an earlier hold.
	if (!last || now - *last > 3 * PASS_NS) {
		bpf_map_update_elem(&passed, key, &now, BPF_ANY);
		return 0;
	}
	if (now - *last < PASS_NS)
		return 0;
	*last = now;
	return 1;
}

SEC("cgroup_skb/egress")
int hold(struct __sk_buff *skb)
{
	struct settings *set = settings();
	if (!set || !set->holds || skb->protocol != bpf_htons(ETH_P_IP))
		return 1;
	struct iphdr ip;
	struct tcphdr tcp;
	if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)) || ip.protocol != IPPROTO_TCP)
		return 1;
	__u32 header = ip.ihl * 4;
	if (bpf_skb_load_bytes(skb, header, &tcp, sizeof(tcp)) || skb->len <= header + tcp.doff * 4)
		return 1;
	struct key key = {
		.src = ip.saddr,
		.dst = ip.daddr,
		.src_port = bpf_ntohs(tcp.source),
		.dst_port = bpf_ntohs(tcp.dest),
	};
	struct order *order = bpf_map_lookup_elem(&orders, &key);
	if (!order)
		return 1;
	__u64 now = bpf_ktime_get_ns();
	if (order->hold_until_ns <= now || set->alive_until_ns <= now)
		return 1;
	if (may_pass(&key, now))
		return 1;
	count(HELD_PACKETS);
	return order->hold_until_ns - now < LAST_NS ? DROP_AS_CONGESTED : DROP;
}

static __always_inline void kick(void *socket)
{
	int before = 0, on = 1, off = 0;
	// Setting TCP_NODELAY sends waiting data, even if it was set before.
	bpf_getsockopt(socket, SOL_TCP, TCP_NODELAY, &before, sizeof(before));
	bpf_setsockopt(socket, SOL_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!before)
		bpf_setsockopt(socket, SOL_TCP, TCP_NODELAY, &off, sizeof(off));
}

SEC("iter/tcp")
int sweep(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct settings *set = settings();
	if (!common || !set)
		return 0;
	if (common->skc_state == BPF_TCP_LISTEN || common->skc_state == BPF_TCP_NEW_SYN_RECV)
		return 0;
	struct key key = {
		.src = common->skc_rcv_saddr,
		.dst = common->skc_daddr,
		.src_port = common->skc_num,
		.dst_port = bpf_ntohs(common->skc_dport),
	};
	if (!ours(set, common->skc_net.net->net_cookie, &key))
		return 0;
	struct tcp_sock *socket = bpf_skc_to_tcp_sock(common);
	if (!socket)
		return 0;
	// From now on, sockets that are older than these programs call them too.
	int flags = BPF_SOCK_OPS_RTT_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG;
	bpf_setsockopt(socket, SOL_TCP, TCP_BPF_SOCK_OPS_CB_FLAGS, &flags, sizeof(flags));
	struct order *order = bpf_map_lookup_elem(&orders, &key);
	if (!order)
		return 0;
	apply_pace(socket, set, &key, order);
	if (order->kick) {
		order->kick = 0;
		kick(socket);
	}
	return 0;
}

// Only programs under the kernel's licence may read its structures. The kernel has no name for "GPL or Apache".
char hostd_license[] SEC("license") = "GPL";
