/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The way of a packet that leaves past the stack, by the node's own routes.
 */
#ifndef FAIRLEAD_ROUTE_H
#define FAIRLEAD_ROUTE_H

#include "packet.h"

#define AF_INET	 2
#define AF_INET6 10

/* Stands in the control block of a packet that leaves past the stack: the
 * program at egress has nothing to look up for it. Where it stands, the stack
 * has the lengths of IP options, which are never that large. */
#define TRANSLATED 0xfa1124d1

/* Looks up the way to p->flow.target, for packets of this length. */
static __always_inline long find_route(struct __sk_buff *skb, struct packet *p, __u16 length)
{
	__builtin_memset(&p->route, 0, sizeof(p->route));
	p->route.ifindex = skb->ifindex;
	p->route.l4_protocol = p->key.protocol;
	p->route.tot_len = length;
	if (p->v6) {
		p->route.family = AF_INET6;
		__builtin_memcpy(p->route.ipv6_src, p->flow.source, sizeof(p->route.ipv6_src));
		__builtin_memcpy(p->route.ipv6_dst, p->flow.target, sizeof(p->route.ipv6_dst));
	} else {
		p->route.family = AF_INET;
		p->route.ipv4_src = p->flow.source[3];
		p->route.ipv4_dst = p->flow.target[3];
	}
	return bpf_fib_lookup(skb, &p->route, sizeof(p->route), 0);
}

/* The length of the packets that a device will make of this one. */
static __always_inline __u16 wire_length(struct __sk_buff *skb, struct packet *p)
{
	if (skb->gso_size)
		return p->l4 - L3 + p->l4_length + skb->gso_size;
	return p->length;
}

/* Whether p->route is a way, be it that the next hop's address on the link is
 * not known yet. */
static __always_inline bool is_route(long found)
{
	return found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH;
}

/* How long a way is believed. */
#define PATH_BELIEVED (100 * 1000 * 1000ULL)

static __always_inline bool knows_path(const struct path *path, __u16 length)
{
	return path->found && bpf_ktime_get_coarse_ns() - path->found < PATH_BELIEVED &&
	       length <= path->mtu;
}

/* Takes p->route, found for packets of some length, into p->flow. */
static __always_inline void take_path(struct packet *p)
{
	struct path *path = &p->flow.path;

	__builtin_memcpy(path->next, p->route.ipv6_dst, sizeof(path->next));
	path->device = p->route.ifindex;
	path->family = p->route.family;
	path->mtu = p->route.mtu_result;
	path->found = bpf_ktime_get_coarse_ns();
}

/* Sends a rewritten packet by the way in p->flow. The neighbour is asked for by
 * the kernel, which thus also learns when it is no longer there. */
static __always_inline int leave(struct __sk_buff *skb, struct packet *p)
{
	struct bpf_redir_neigh next = { .nh_family = p->flow.path.family };

	skb->cb[1] = TRANSLATED;
	__builtin_memcpy(next.ipv6_nh, p->flow.path.next, sizeof(next.ipv6_nh));
	return bpf_redirect_neigh(p->flow.path.device, &next, sizeof(next), 0);
}

#endif
