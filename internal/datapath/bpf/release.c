/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Letting go (R35): a connected UDP socket never asks for another backend by
 * itself, so one whose backend is gone is destroyed, and its process connects
 * anew. The first program finds the namespaces of such sockets in one pass over
 * the storage of all sockets that talk to a Service; the second one runs inside
 * of one of them, where alone the kernel lets a program destroy a socket.
 */
#include "maps.h"
#include "select.h"

#include <linux/in.h>
#include <bpf/bpf_core_read.h>

#define AF_INET	 2
#define AF_INET6 10

#define KERNEL_TYPE __attribute__((preserve_access_index))

/* What is used of the kernel's types; their layout is found on loading. */
struct ns_common {
	unsigned int inum;
} KERNEL_TYPE;

struct net {
	struct ns_common ns;
} KERNEL_TYPE;

typedef struct {
	struct net *net;
} KERNEL_TYPE possible_net_t;

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
} KERNEL_TYPE;

struct sock_common {
	__be32 skc_daddr;
	__be16 skc_dport;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
} KERNEL_TYPE;

struct sock {
	struct sock_common __sk_common;
	__u16 sk_protocol;
} KERNEL_TYPE;

struct inet_sock {
	struct sock sk;
} KERNEL_TYPE;

struct udp_sock {
	struct inet_sock inet;
} KERNEL_TYPE;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} KERNEL_TYPE;

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct sock *sk;
	struct peer *value;
} KERNEL_TYPE;

struct bpf_iter__udp {
	struct bpf_iter_meta *meta;
	struct udp_sock *udp_sk;
} KERNEL_TYPE;

extern int bpf_sock_destroy(struct sock_common *sk) __ksym;

/* A socket that was destroyed, and what it had talked to. */
struct released {
	struct endpoint frontend;
	struct endpoint backend;
	__u32 owner;
	__u32 set;
};

char _license[] SEC("license") = "Dual BSD/GPL";

/* Whether the socket is a UDP one that is connected to the endpoint. What a
 * socket remembers may also be whom it sent a single datagram to, or whom it is
 * about to be connected to. */
static __always_inline bool is_connected_to(struct sock *sk, const struct endpoint *e)
{
	struct sock_common *c = &sk->__sk_common;

	if (sk->sk_protocol != IPPROTO_UDP || c->skc_state != BPF_TCP_ESTABLISHED ||
	    c->skc_dport != e->port)
		return false;
	if (c->skc_family == AF_INET)
		return is_v4(e->address) && c->skc_daddr == e->address[3];
	return c->skc_family == AF_INET6 &&
	       c->skc_v6_daddr.in6_u.u6_addr32[0] == e->address[0] &&
	       c->skc_v6_daddr.in6_u.u6_addr32[1] == e->address[1] &&
	       c->skc_v6_daddr.in6_u.u6_addr32[2] == e->address[2] &&
	       c->skc_v6_daddr.in6_u.u6_addr32[3] == e->address[3];
}

/* Whether the backend has left its set, or the set its owner. A set is searched
 * even if its word is the one that the socket saw: extents are used again, so a
 * word may come back with other backends. A set that does not exist belonged to
 * larger maps, which these have replaced: nothing is known of its backends. */
static __always_inline bool is_gone(const struct peer *p)
{
	struct selection s = { .owner = p->owner };
	struct set *set = bpf_map_lookup_elem(&fairlead_sets, &p->set);

	if (!set)
		return false;
	if (READ_ONCE(set->owner) != p->owner)
		return true;
	s.word = READ_ONCE(set->word);
	return !is_member(&s, &p->backend);
}

/* Writes the inode number of a socket's namespace, once for each socket that is
 * to be released there. */
SEC("iter/bpf_sk_storage_map")
int fairlead_find(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct sock *sk = ctx->sk;
	struct peer *known = ctx->value, p;
	__u32 netns;

	if (!sk || !known)
		return 0;
	p = *known;
	/* In this order, few sockets are looked at themselves. */
	if (!is_gone(&p) || !is_connected_to(sk, &p.backend))
		return 0;
	netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
	bpf_seq_write(ctx->meta->seq, &netns, sizeof(netns));
	return 0;
}

/* Destroys those sockets of a namespace, and writes each. The socket is locked,
 * so none is in connect() now. It is asked again whether its backend is gone:
 * both may have changed since it was found. */
SEC("iter/udp")
int fairlead_release(struct bpf_iter__udp *ctx)
{
	struct udp_sock *sk = ctx->udp_sk;
	struct released r = {};
	struct peer *known, p;

	if (!sk)
		return 0;
	known = bpf_sk_storage_get(&fairlead_peers, sk, NULL, 0);
	if (!known)
		return 0;
	p = *known;
	if (!is_connected_to(&sk->inet.sk, &p.backend) || !is_gone(&p))
		return 0;
	r.frontend = p.frontend;
	r.backend = p.backend;
	r.owner = p.owner;
	r.set = p.set;
	/* Without room the kernel comes back to this socket when there is some. */
	if (bpf_seq_write(ctx->meta->seq, &r, sizeof(r)))
		return 0;
	bpf_sock_destroy((struct sock_common *)sk);
	return 0;
}
