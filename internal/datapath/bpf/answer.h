/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Answers to a packet that goes no further: a TCP reset, or an ICMP error, in
 * the name of the Service's address, back the way the packet came.
 */
#ifndef FAIRLEAD_ANSWER_H
#define FAIRLEAD_ANSWER_H

#include "packet.h"

#define ICMP_PORT_UNREACHABLE	3 /* codes */
#define ICMP_MUST_FRAGMENT	4
#define ICMPV6_UNREACHABLE	1
#define ICMPV6_TOO_BIG		2
#define ICMPV6_TIME_EXCEEDED	3
#define ICMPV6_PORT_UNREACHABLE 4

#define ANSWER_TTL 64

/* What an ICMP error says, as IPv4 and as IPv6 have it. */
struct complaint {
	__u8 type, code;
	__u8 type6, code6;
	__u16 mtu; /* 0: none */
};

/* The sum of the pseudo header, addresses the other way round. */
static __always_inline __u64 pseudo_sum(const struct packet *p, __u8 protocol, __u32 length)
{
	__u64 sum = bpf_htonl(length) + (__u64)bpf_htonl(protocol);
	int i;

	if (!p->v6)
		return sum + p->key.source[3] + p->key.target[3];
#pragma unroll
	for (i = 0; i < 4; i++)
		sum += (__u64)p->key.source[i] + p->key.target[i];
	return sum;
}

/* Writes the network header of an answer with this much behind it; returns how
 * long the header is. */
static __always_inline __u32 answer_header(struct packet *p, __u8 protocol, __u32 length)
{
	struct iphdr *ip = (struct iphdr *)p->answer.bytes;
	struct ipv6hdr *ip6 = (struct ipv6hdr *)p->answer.bytes;

	if (p->v6) {
		__builtin_memset(ip6, 0, sizeof(*ip6));
		ip6->version = 6;
		ip6->payload_len = bpf_htons(length);
		ip6->nexthdr = protocol;
		ip6->hop_limit = ANSWER_TTL;
		__builtin_memcpy(&ip6->saddr, p->key.target, sizeof(ip6->saddr));
		__builtin_memcpy(&ip6->daddr, p->key.source, sizeof(ip6->daddr));
		return sizeof(*ip6);
	}
	__builtin_memset(ip, 0, sizeof(*ip));
	ip->version = 4;
	ip->ihl = 5;
	ip->tot_len = bpf_htons(sizeof(*ip) + length);
	ip->frag_off = bpf_htons(0x4000); /* do not fragment */
	ip->ttl = ANSWER_TTL;
	ip->protocol = protocol;
	ip->saddr = p->key.target[3];
	ip->daddr = p->key.source[3];
	ip->check = ~fold16((__u32)bpf_csum_diff(NULL, 0, (__be32 *)ip, sizeof(*ip), 0));
	return sizeof(*ip);
}

/* More than any headers up to the end of a checksum field. */
#define DISCARDED 160

/* Sends what stands in p->answer, with this length. The packet is first cut
 * off behind its Ethernet header, by more than where a checksum that a device
 * was still to make would begin: that makes the kernel give it up. */
static __noinline int send_answer(struct __sk_buff *skb, struct packet *p, __u32 length)
{
	__u8 from[2 * ETH_ALEN], to[2 * ETH_ALEN];

	if (!p || length < sizeof(struct ipv6hdr) || length > sizeof(p->answer.bytes))
		return DROP;
	if (bpf_skb_change_tail(skb, L3 + length + DISCARDED, 0) ||
	    bpf_skb_adjust_room(skb, -DISCARDED, BPF_ADJ_ROOM_MAC, 0) ||
	    bpf_skb_store_bytes(skb, L3, p->answer.bytes, length, BPF_F_RECOMPUTE_CSUM) ||
	    bpf_skb_load_bytes(skb, 0, from, sizeof(from))) {
		count(COUNTER_FAILED);
		return DROP;
	}
	__builtin_memcpy(to, from + ETH_ALEN, ETH_ALEN);
	__builtin_memcpy(to + ETH_ALEN, from, ETH_ALEN);
	if (bpf_skb_store_bytes(skb, 0, to, sizeof(to), 0)) {
		count(COUNTER_FAILED);
		return DROP;
	}
	return bpf_redirect(skb->ifindex, 0);
}

static __noinline int answer_reset(struct __sk_buff *skb, struct packet *p)
{
	struct tcphdr tcp = {};
	__u32 header;

	if (!p || p->tcp_flags & TCP_RST)
		return DROP;
	tcp.source = p->key.target_port;
	tcp.dest = p->key.source_port;
	tcp.doff = sizeof(tcp) / 4;
	tcp.rst = 1;
	if (p->tcp_flags & TCP_ACK) {
		tcp.seq = bpf_htonl(p->acknowledged);
	} else {
		tcp.ack = 1;
		tcp.ack_seq = bpf_htonl(p->sequence + !!(p->tcp_flags & TCP_SYN) +
					!!(p->tcp_flags & TCP_FIN) + p->length -
					(p->l4 - L3) - p->l4_length);
	}
	tcp.check = ~fold16((__u32)bpf_csum_diff(NULL, 0, (__be32 *)&tcp, sizeof(tcp), 0) +
			    pseudo_sum(p, IPPROTO_TCP, sizeof(tcp)));
	header = answer_header(p, IPPROTO_TCP, sizeof(tcp));
	if (header == sizeof(struct ipv6hdr)) {
		__builtin_memcpy(p->answer.bytes + sizeof(struct ipv6hdr), &tcp, sizeof(tcp));
		return send_answer(skb, p, sizeof(struct ipv6hdr) + sizeof(tcp));
	}
	__builtin_memcpy(p->answer.bytes + sizeof(struct iphdr), &tcp, sizeof(tcp));
	return send_answer(skb, p, sizeof(struct iphdr) + sizeof(tcp));
}

struct icmp_error {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u32 value;
};

static __noinline int answer_error(struct __sk_buff *skb, struct packet *p,
				   const struct complaint *c)
{
	__u32 quoted = p ? p->length & ~3U : 0, header, length;
	struct icmp_error error = {};
	__u64 sum = 0;

	if (!p || !c || p->fragment == LATER_FRAGMENT)
		return DROP;
	if (quoted > QUOTED)
		quoted = QUOTED;
	header = p->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	length = sizeof(error) + quoted;
	if (quoted < sizeof(struct iphdr) + 8)
		return DROP;
	if (bpf_skb_load_bytes(skb, L3, p->answer.bytes + header + sizeof(error), quoted)) {
		count(COUNTER_FAILED);
		return DROP;
	}
	error.type = p->v6 ? c->type6 : c->type;
	error.code = p->v6 ? c->code6 : c->code;
	error.value = bpf_htonl(c->mtu);
	if (p->v6)
		sum = pseudo_sum(p, IPPROTO_ICMPV6, length);
	sum += (__u32)bpf_csum_diff(NULL, 0, (__be32 *)&error, sizeof(error), 0);
	sum += (__u32)bpf_csum_diff(NULL, 0, (__be32 *)(p->answer.bytes + header + sizeof(error)),
				    quoted, 0);
	error.checksum = ~fold16(sum);
	__builtin_memcpy(p->answer.bytes + header, &error, sizeof(error));
	answer_header(p, p->v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP, length);
	return send_answer(skb, p, header + length);
}

/* R13: what a closed port would answer. */
static __always_inline int answer_refused(struct __sk_buff *skb, struct packet *p)
{
	struct complaint c = {
		.type = ICMP_UNREACHABLE, .code = ICMP_PORT_UNREACHABLE,
		.type6 = ICMPV6_UNREACHABLE, .code6 = ICMPV6_PORT_UNREACHABLE,
	};

	if (p->key.protocol == IPPROTO_TCP)
		return answer_reset(skb, p);
	return answer_error(skb, p, &c);
}

static __always_inline int answer_too_big(struct __sk_buff *skb, struct packet *p, __u16 mtu)
{
	struct complaint c = {
		.type = ICMP_UNREACHABLE, .code = ICMP_MUST_FRAGMENT,
		.type6 = ICMPV6_TOO_BIG, .mtu = mtu,
	};

	count(COUNTER_TOO_BIG);
	return answer_error(skb, p, &c);
}

static __always_inline int answer_expired(struct __sk_buff *skb, struct packet *p)
{
	struct complaint c = { .type = ICMP_TIME_EXCEEDED, .type6 = ICMPV6_TIME_EXCEEDED };

	return answer_error(skb, p, &c);
}

#endif
