// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The kernel part of a switch: forwards frames whose decision is known, and passes all other frames to user space.
//
// `forward` runs at tc ingress of each port. A frame of a remembered flow leaves through the queue of its output port.
// Every other frame goes into a ring, up to a rate limit per port. All state is in the maps below. `layout.rs` contains
// the same structures, which have no padding. The conditions for forwarding are those of `Verdict::remember`.

#include "kernel.h"
#include <linux/pkt_cls.h>

#define MOST_FLOWS 131072
#define MOST_PORTS 4096
#define SMALL_BYTES 256
#define LONGEST_BYTES 2048
#define RING_BYTES (1 << 21)
#define FRAGMENT_OFFSET 0x1fff
#define SYN_FIN_RST 0x07
#define NS_PER_S 1000000000ull

struct flow {
	__u32 ifindex;             // input interface
	__u32 src, dst;            // as on the wire
	__u16 src_port, dst_port;  // as on the wire
	__u16 proto, dscp;
	__u8 dst_mac[ETH_ALEN], src_mac[ETH_ALEN];
};

struct path {
	__u32 ifindex; // output interface
	__u32 kind;
	__u64 exploration;
	__u64 last_ns;
	__u64 packets, bytes;
};

struct port {
	__u32 number;
	__u32 per_s; // maximum number of frames to user space per second; 0: no limit
	__u64 due_ns; // time up to which the rate is used up by the frames so far
	__u64 forwarded, forwarded_bytes;
	__u64 told, limited, lost, too_long;
};

struct header {
	__u32 port;
	__u32 len;
	__u32 tagged;
	__u32 tci;
};

struct small {
	struct header header;
	__u8 bytes[SMALL_BYTES];
};

struct large {
	struct header header;
	__u8 bytes[LONGEST_BYTES];
};

MAP(paths, BPF_MAP_TYPE_HASH, MOST_FLOWS, struct flow, struct path, BPF_F_NO_PREALLOC);
MAP(ports, BPF_MAP_TYPE_HASH, MOST_PORTS, __u32, struct port, BPF_F_NO_PREALLOC);

struct {
	INT(type, BPF_MAP_TYPE_RINGBUF);
	INT(max_entries, RING_BYTES);
} frames SEC(".maps");

static long (*const bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*const bpf_clone_redirect)(struct __sk_buff *skb, __u32 ifindex, __u64 flags) =
	(void *)BPF_FUNC_clone_redirect;

#define count(field, amount) __sync_fetch_and_add(&(field), amount)

// Whether the port may pass one more frame to user space: `per_s` per second, and at most a tenth of this at once.
static __always_inline int may_tell(struct port *port)
{
	__u64 now, due;

	if (!port->per_s)
		return 1;
	now = bpf_ktime_get_ns();
	due = port->due_ns;
	if (due < now)
		due = now;
	if (due - now > NS_PER_S / 10)
		return 0;
	port->due_ns = due + NS_PER_S / port->per_s;
	return 1;
}

#define TELL(type)                                                                          \
	do {                                                                                      \
		struct type *record = bpf_ringbuf_reserve(&frames, sizeof(struct type), 0);       \
		if (!record) {                                                                    \
			count(port->lost, 1);                                                     \
			return TC_ACT_SHOT;                                                       \
		}                                                                                 \
		record->header.port = port->number;                                               \
		record->header.len = len;                                                         \
		record->header.tagged = skb->vlan_present;                                        \
		record->header.tci = skb->vlan_tci;                                               \
		if (bpf_skb_load_bytes(skb, 0, record->bytes, len) < 0)                           \
			record->header.len = 0;                                                   \
		bpf_ringbuf_submit(record, 0);                                                    \
	} while (0)

static __always_inline int tell(struct __sk_buff *skb, struct port *port)
{
	__u32 len = skb->len;

	if (!may_tell(port)) {
		count(port->limited, 1);
		return TC_ACT_SHOT;
	}
	if (len == 0 || len > LONGEST_BYTES) {
		count(port->too_long, 1);
		return TC_ACT_SHOT;
	}
	count(port->told, 1);
	if (len <= SMALL_BYTES)
		TELL(small);
	else
		TELL(large);
	return TC_ACT_SHOT;
}

// Reads the flow of an untagged IPv4 frame. Returns 0 if user space must handle the frame.
static __always_inline int read_flow(struct __sk_buff *skb, struct flow *flow)
{
	struct {
		struct ethhdr ethernet;
		struct iphdr ip;
		__be16 src_port, dst_port;
	} __attribute__((packed)) head;
	__u8 flags;

	if (skb->vlan_present || bpf_skb_load_bytes(skb, 0, &head, sizeof(head)) < 0)
		return 0;
	if (head.ethernet.h_proto != bpf_htons(ETH_P_IP) || head.ip.version != 4 || head.ip.ihl != 5)
		return 0;
	__builtin_memcpy(flow->dst_mac, head.ethernet.h_dest, ETH_ALEN);
	__builtin_memcpy(flow->src_mac, head.ethernet.h_source, ETH_ALEN);
	flow->ifindex = skb->ifindex;
	flow->src = head.ip.saddr;
	flow->dst = head.ip.daddr;
	flow->proto = head.ip.protocol;
	flow->dscp = head.ip.tos >> 2;
	flow->src_port = flow->dst_port = 0;
	if (head.ip.frag_off & bpf_htons(FRAGMENT_OFFSET))
		return 1;
	if (head.ip.protocol != IPPROTO_TCP && head.ip.protocol != IPPROTO_UDP)
		return 1;
	flow->src_port = head.src_port;
	flow->dst_port = head.dst_port;
	if (head.ip.protocol == IPPROTO_UDP)
		return 1;
	if (bpf_skb_load_bytes(skb, sizeof(struct ethhdr) + sizeof(struct iphdr) + 13, &flags, 1) < 0)
		return 0;
	return !(flags & SYN_FIN_RST);
}

SEC("classifier") int forward(struct __sk_buff *skb)
{
	struct flow flow = {};
	struct path *path;
	struct port *port;
	__u32 ifindex = skb->ifindex;

	port = bpf_map_lookup_elem(&ports, &ifindex);
	if (!port)
		return TC_ACT_OK; // the interface is not a port of the switch any more
	if (!read_flow(skb, &flow))
		return tell(skb, port);
	path = bpf_map_lookup_elem(&paths, &flow);
	if (!path)
		return tell(skb, port);
	path->last_ns = bpf_ktime_get_ns();
	count(path->packets, 1);
	count(path->bytes, skb->len);
	count(port->forwarded, 1);
	count(port->forwarded_bytes, skb->len);
	if (skb->sk) {
		// The sender is a socket of this machine, behind a veth. A clone has no owner. Otherwise, the socket would
		// count frames in the queues of the fabric as frames in the queue of its own interface (TCP small queues).
		bpf_clone_redirect(skb, path->ifindex, 0);
		return TC_ACT_SHOT;
	}
	return bpf_redirect(path->ifindex, 0);
}

char switch_license[] SEC("license") = "GPL";
