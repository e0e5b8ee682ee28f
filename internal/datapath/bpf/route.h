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

/* Sends a rewritten packet by p->route. */
static __always_inline int leave(struct __sk_buff *skb, struct packet *p, long found)
{
	struct bpf_redir_neigh next = { .nh_family = p->route.family };
	__u8 macs[2 * ETH_ALEN];

	skb->cb[1] = TRANSLATED;
	if (found == BPF_FIB_LKUP_RET_NO_NEIGH) {
		__builtin_memcpy(next.ipv6_nh, p->route.ipv6_dst, sizeof(next.ipv6_nh));
		return bpf_redirect_neigh(p->route.ifindex, &next, sizeof(next), 0);
	}
	__builtin_memcpy(macs, p->route.dmac, ETH_ALEN);
	__builtin_memcpy(macs + ETH_ALEN, p->route.smac, ETH_ALEN);
	if (bpf_skb_store_bytes(skb, 0, macs, sizeof(macs), 0)) {
		count(COUNTER_FAILED);
		return DROP;
	}
	return bpf_redirect(p->route.ifindex, 0);
}

#endif
