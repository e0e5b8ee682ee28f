/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ICMP errors about packets that were translated. They repeat the packet as it
 * was on the side where it went wrong, and must name the addresses and ports
 * that the other side knows. The checksum of the repeated TCP or UDP header is
 * left as it is: nobody checks it, and most errors end before it.
 */
#ifndef FAIRLEAD_ICMP_H
#define FAIRLEAD_ICMP_H

#include "flow.h"
#include "packet.h"
#include "route.h"

struct quoted {
	__u32 at;	/* of the repeated packet */
	__u32 ports_at; /* of its ports */
	__u16 header_checksum;
	__u8 ttl;
	__be16 ports[2];
};

static __always_inline bool is_error(const struct packet *p, __u8 type)
{
	if (p->v6)
		return type >= 1 && type <= 4;
	return type == ICMP_UNREACHABLE || type == ICMP_QUENCH ||
	       type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETER;
}

/* What the error repeats may be the first fragment of a datagram: it has the
 * ports. */
static __always_inline bool skip_quoted_fragment(struct __sk_buff *skb, struct packet *p, struct quoted *q)
{
	struct extension extension;

	if (p->key.protocol != EXTENSION_FRAGMENT)
		return true;
	if (bpf_skb_load_bytes(skb, q->ports_at, &extension, sizeof(extension)) ||
	    extension.offset & bpf_htons(0xfff8))
		return false;
	p->key.protocol = extension.next;
	q->ports_at += sizeof(extension);
	return true;
}

/* Reads what the error repeats. p->key becomes the packet that would go the
 * opposite way; the addresses of the error itself go to p->other. */
static __always_inline bool parse_quoted(struct __sk_buff *skb, struct packet *p, struct quoted *q)
{
	struct ipv6hdr ip6;
	struct iphdr ip;
	__u8 type;

	if (bpf_skb_load_bytes(skb, p->l4, &type, 1) || !is_error(p, type))
		return false;
	__builtin_memcpy(p->other.source, p->key.source, sizeof(p->other.source));
	__builtin_memcpy(p->other.target, p->key.target, sizeof(p->other.target));
	q->at = p->l4 + 8;
	if (p->v6) {
		if (bpf_skb_load_bytes(skb, q->at, &ip6, sizeof(ip6)) || ip6.version != 6)
			return false;
		__builtin_memcpy(p->key.source, &ip6.daddr, sizeof(p->key.source));
		__builtin_memcpy(p->key.target, &ip6.saddr, sizeof(p->key.target));
		if (is_v4(p->key.source) || is_v4(p->key.target))
			return false;
		p->key.protocol = ip6.nexthdr;
		q->ports_at = q->at + sizeof(ip6);
		if (!skip_quoted_fragment(skb, p, q))
			return false;
	} else {
		if (bpf_skb_load_bytes(skb, q->at, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
			return false;
		if (ip.frag_off & bpf_htons(IP_OFFSET))
			return false;
		p->key.source[3] = ip.daddr;
		p->key.target[3] = ip.saddr;
		p->key.protocol = ip.protocol;
		q->header_checksum = ip.check;
		q->ttl = ip.ttl;
		q->ports_at = q->at + ip.ihl * 4;
	}
	if (p->key.protocol != IPPROTO_TCP && p->key.protocol != IPPROTO_UDP)
		return false;
	if (bpf_skb_load_bytes(skb, q->ports_at, q->ports, sizeof(q->ports)))
		return false;
	p->key.source_port = q->ports[1];
	p->key.target_port = q->ports[0];
	return true;
}

/* Makes the repeated packet what the other side knows, and the error's
 * checksum with it. The new addresses are those of p->flow turned round. */
static __always_inline long rewrite_quoted(struct __sk_buff *skb, struct packet *p,
					   const struct quoted *q)
{
	__u64 addresses = address_difference(p);
	__be16 ports[2] = { p->flow.target_port, p->flow.source_port };
	struct ip_tail tail = {
		.ttl = q->ttl,
		.protocol = p->key.protocol,
		.checksum = ~fold16(addresses + (__u16)~q->header_checksum),
		.source = p->flow.target[3],
		.target = p->flow.source[3],
	};

	if (bpf_l4_csum_replace(skb, p->l4 + 2, ports_of(q->ports), ports_of(ports), 4) ||
	    bpf_skb_store_bytes(skb, q->ports_at, ports, sizeof(ports), 0))
		return -1;
	if (!p->v6)
		return bpf_skb_store_bytes(skb, q->at + 8, &tail, sizeof(tail), 0);
	/* IPv6 has no checksum of its own that would make up for addresses. */
	if (bpf_l4_csum_replace(skb, p->l4 + 2, 0, fold32(addresses), 0) ||
	    bpf_skb_store_bytes(skb, q->at + 8, p->flow.target, 16, 0))
		return -1;
	return bpf_skb_store_bytes(skb, q->at + 24, p->flow.source, 16, 0);
}

/* Gives the error itself the addresses that its receiver knows: it comes from
 * the Service, or, towards the backend, from where it came unless that side
 * sees the node's own address. */
static __always_inline long rewrite_error(struct __sk_buff *skb, struct packet *p, __u8 ttl)
{
	__u64 difference;

	if (!(p->flow.flags & (FLOW_REPLY | FLOW_SNAT)))
		__builtin_memcpy(p->flow.source, p->other.source, sizeof(p->flow.source));
	__builtin_memcpy(p->key.source, p->other.source, sizeof(p->key.source));
	__builtin_memcpy(p->key.target, p->other.target, sizeof(p->key.target));
	p->key.protocol = p->v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
	difference = address_difference(p);
	if (p->v6 &&
	    bpf_l4_csum_replace(skb, p->l4 + 2, 0, fold32(difference), BPF_F_PSEUDO_HDR))
		return -1;
	return write_header(skb, p, difference, ttl);
}

static __noinline int on_icmp(struct __sk_buff *skb, struct packet *p)
{
	struct quoted q = {};
	bool redirect;

	if (!p || !parse_quoted(skb, p, &q))
		return NEXT;
	if (!take_flow(find_confirmed(&p->key), p) && !take_flow(find_embryo(&p->key), p))
		return NEXT;
	redirect = p->flow.flags & FLOW_REDIRECT;
	if (redirect) {
		if (p->ttl <= 1 || !is_route(find_route(skb, p, p->length))) {
			count(COUNTER_UNROUTABLE);
			return DROP;
		}
		take_path(p);
	}
	if (rewrite_quoted(skb, p, &q) || rewrite_error(skb, p, redirect ? p->ttl - 1 : p->ttl)) {
		count(COUNTER_FAILED);
		return DROP;
	}
	return redirect ? leave(skb, p) : NEXT;
}

#endif
