// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
//
// The parts of the kernel's interface to BPF programs that are in no header of /usr/include: sections, maps, helper
// functions, and the fields of the kernel's own structures that are read, whose places the loader fills in.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>

#define SEC(name) __attribute__((section(name), used))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define INT(name, value) int(*name)[value]
#define MAP(name, kind, count, key_type, value_type, flags) \
	struct {                                            \
		INT(type, kind);                            \
		INT(max_entries, count);                    \
		INT(map_flags, flags);                      \
		key_type *key;                              \
		value_type *value;                          \
	} name SEC(".maps")

#define bpf_htons(x) __builtin_bswap16(x)
#define bpf_ntohs(x) __builtin_bswap16(x)
#define bpf_htonl(x) __builtin_bswap32(x)
#define bpf_ntohl(x) __builtin_bswap32(x)
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "only little-endian machines are supported"
#endif

#define AF_INET 2
#define AF_INET6 10
// What a cgroup's egress program returns: the sender sees EPERM, or NET_XMIT_DROP.
#define DROP 0
#define DROP_AS_CONGESTED 2
#define SOL_IP 0
#define SOL_SOCKET 1
#define SOL_TCP 6
#define IP_TOS 1
#define SO_MAX_PACING_RATE 47
#define TCP_BPF_SOCK_OPS_CB_FLAGS 1008 // since Linux 6.11

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) =
	(void *)BPF_FUNC_map_update_elem;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_delete_elem;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*const bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 len) =
	(void *)BPF_FUNC_skb_load_bytes;
static __u64 (*const bpf_get_socket_cookie)(void *ctx) = (void *)BPF_FUNC_get_socket_cookie;
static __u64 (*const bpf_get_netns_cookie)(void *ctx) = (void *)BPF_FUNC_get_netns_cookie;
static long (*const bpf_setsockopt)(void *socket, int level, int name, void *value, int len) =
	(void *)BPF_FUNC_setsockopt;
static long (*const bpf_getsockopt)(void *socket, int level, int name, void *value, int len) =
	(void *)BPF_FUNC_getsockopt;
static long (*const bpf_sock_ops_cb_flags_set)(struct bpf_sock_ops *ops, int flags) =
	(void *)BPF_FUNC_sock_ops_cb_flags_set;
static void *(*const bpf_ringbuf_reserve)(void *map, __u64 size, __u64 flags) = (void *)BPF_FUNC_ringbuf_reserve;
static void (*const bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)BPF_FUNC_ringbuf_submit;
static long (*const bpf_ringbuf_output)(void *map, void *data, __u64 size, __u64 flags) =
	(void *)BPF_FUNC_ringbuf_output;
static struct tcp_sock *(*const bpf_skc_to_tcp_sock)(void *common) = (void *)BPF_FUNC_skc_to_tcp_sock;
static struct mptcp_sock *(*const bpf_skc_to_mptcp_sock)(void *socket) = (void *)BPF_FUNC_skc_to_mptcp_sock;

#define KERNEL __attribute__((preserve_access_index))

struct net {
	__u64 net_cookie;
} KERNEL;

typedef struct {
	struct net *net;
} KERNEL possible_net_t;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned char skc_state;
	possible_net_t skc_net;
} KERNEL;

struct tcp_sock {
	__u32 write_seq;
	__u32 snd_una;
} KERNEL;

struct sock;

struct mptcp_sock {
	struct sock *first; // the first subflow
} KERNEL;

struct bpf_iter_meta;

struct bpf_iter__tcp {
	union {
		struct bpf_iter_meta *meta;
		__u64 : 64;
	};
	union {
		struct sock_common *sk_common;
		__u64 : 64;
	};
};
