/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A packet on the wire: reading what decides about it, and writing what it
 * becomes. Offsets count from the Ethernet header.
 */
#ifndef FAIRLEAD_PACKET_H
#define FAIRLEAD_PACKET_H

#include "select.h"

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

/* TCX_NEXT and TC_ACT_UNSPEC of clsact: whoever comes next decides. */
#define NEXT -1
#define DROP 2 /* TCX_DROP, TC_ACT_SHOT */

#define L3 ETH_HLEN

#define VLAN_ID 0x0fff /* of __sk_buff.vlan_tci */

#define PACKET_HOST 0 /* __sk_buff.pkt_type: for this machine */

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

#define EXTENSION_HOPS	      0
#define EXTENSION_ROUTING     43
#define EXTENSION_FRAGMENT    44
#define EXTENSION_DESTINATION 60
#define EXTENSIONS	      6 /* how many are looked behind */

/* Types of ICMP errors. */
#define ICMP_UNREACHABLE   3
#define ICMP_QUENCH	   4
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER	   12

#define IP_MORE_FRAGMENTS 0x2000
#define IP_OFFSET	  0x1fff

#define QUOTED 96 /* bytes of a packet that an ICMP error repeats at most */

enum fragment_part {
	WHOLE,
	FIRST_FRAGMENT, /* has the ports */
	LATER_FRAGMENT,
};

enum parsed {
	PARSED_OTHER, /* nothing that a Service could have */
	PARSED_BAD,   /* addresses are read, and no more can be */
	PARSED_PORTS, /* TCP or UDP; of a later fragment without ports */
	PARSED_ICMP,
};

/* What a program knows of the packet it works on. It lies in a map, since the
 * stack has no room for it; a program has its processor to itself. */
struct packet {
	struct flow_key key;   /* the packet as it arrived */
	struct flow_key other; /* the key of the flow's other direction */
	struct flow flow;      /* what it becomes */
	struct flow reply;     /* of a new flow: the other direction */
	struct selection selection;
	struct bpf_fib_lookup route;
	__u32 l4;
	__u32 length; /* of the network layer, header included */
	__u32 sequence;
	__u32 acknowledged;
	__u32 fragment_id;
	__u16 header_checksum; /* of IPv4 */
	__u16 checksum;	       /* of TCP or UDP */
	__u8 l4_length;	       /* of the TCP or UDP header */
	__u8 tcp_flags;
	__u8 fragment; /* enum fragment_part */
	__u8 ttl;
	__u8 v6;
	__u8 pad[3];
	union {
		__u8 bytes[ETH_HLEN + sizeof(struct ipv6hdr) + 8 + QUOTED + 2];
		__u32 words[1];
	} answer;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct packet);
	__uint(max_entries, 1);
} packets SEC(".maps");

static __always_inline struct packet *this_packet(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&packets, &zero);
}

static __always_inline struct packet *new_packet(__u8 at)
{
	struct packet *p = this_packet();

	if (!p)
		return NULL;
	p->key.at = at;
	p->key.pad = 0;
	p->key.source_port = 0;
	p->key.target_port = 0;
	p->fragment = WHOLE;
	p->tcp_flags = 0;
	p->l4_length = 0;
	return p;
}

/* The part of a packet up to which headers are read where they lie. */
#define HEADERS 256

/* Reads a header into a variable; true if the packet ends before it. Most often
 * it lies in the first part of the packet's memory, where it costs no call. */
#define READ(skb, at, to)                                                              \
	({                                                                             \
		void *end = (void *)(long)(skb)->data_end;                             \
		typeof(to) *from = (void *)(long)(skb)->data + (at);                   \
		bool there = (at) <= HEADERS && (void *)(from + 1) <= end;             \
									               \
		if (there)                                                             \
			(to) = *from;                                                  \
		!there && bpf_skb_load_bytes(skb, at, &(to), sizeof(to));              \
	})

static __always_inline enum parsed parse_ports(struct __sk_buff *skb, struct packet *p)
{
	struct tcphdr tcp;
	struct udphdr udp;
	__u32 l4 = p->l4;

	if (p->fragment == LATER_FRAGMENT)
		return p->key.protocol == IPPROTO_TCP || p->key.protocol == IPPROTO_UDP ?
			       PARSED_PORTS : PARSED_OTHER;
	switch (p->key.protocol) {
	case IPPROTO_TCP:
		if (READ(skb, l4, tcp))
			return PARSED_BAD;
		p->key.source_port = tcp.source;
		p->key.target_port = tcp.dest;
		p->sequence = bpf_ntohl(tcp.seq);
		p->acknowledged = bpf_ntohl(tcp.ack_seq);
		p->tcp_flags = ((__u8 *)&tcp)[13];
		p->l4_length = tcp.doff * 4;
		return p->l4_length < sizeof(tcp) ? PARSED_BAD : PARSED_PORTS;
	case IPPROTO_UDP:
		if (READ(skb, l4, udp))
			return PARSED_BAD;
		p->key.source_port = udp.source;
		p->key.target_port = udp.dest;
		p->checksum = udp.check;
		p->l4_length = sizeof(udp);
		return PARSED_PORTS;
	case IPPROTO_ICMP:
		return p->v6 || p->fragment ? PARSED_OTHER : PARSED_ICMP;
	case IPPROTO_ICMPV6:
		return p->v6 && !p->fragment ? PARSED_ICMP : PARSED_OTHER;
	}
	return PARSED_OTHER;
}

static __always_inline void set_v4(__be32 *to, __be32 address)
{
	to[0] = 0;
	to[1] = 0;
	to[2] = MAPPED;
	to[3] = address;
}

static __always_inline enum parsed parse_v4(struct __sk_buff *skb, struct packet *p)
{
	struct iphdr ip;
	__u16 fragment;

	if (READ(skb, L3, ip) || ip.version != 4)
		return PARSED_OTHER;
	p->v6 = 0;
	set_v4(p->key.source, ip.saddr);
	set_v4(p->key.target, ip.daddr);
	p->key.protocol = ip.protocol;
	p->ttl = ip.ttl;
	p->header_checksum = ip.check;
	p->length = bpf_ntohs(ip.tot_len);
	p->l4 = L3 + ip.ihl * 4;
	if (ip.ihl < 5)
		return PARSED_BAD;
	fragment = bpf_ntohs(ip.frag_off);
	if (fragment & (IP_MORE_FRAGMENTS | IP_OFFSET)) {
		p->fragment = fragment & IP_OFFSET ? LATER_FRAGMENT : FIRST_FRAGMENT;
		p->fragment_id = ip.id;
	}
	return parse_ports(skb, p);
}

struct extension {
	__u8 next;
	__u8 length;
	__be16 offset; /* of a fragment */
	__be32 id;
};

static __always_inline enum parsed parse_v6(struct __sk_buff *skb, struct packet *p)
{
	struct extension extension;
	struct ipv6hdr ip;
	__u8 next;
	int i;

	if (READ(skb, L3, ip) || ip.version != 6)
		return PARSED_OTHER;
	p->v6 = 1;
	__builtin_memcpy(p->key.source, &ip.saddr, sizeof(p->key.source));
	__builtin_memcpy(p->key.target, &ip.daddr, sizeof(p->key.target));
	/* A mapped address on the wire is nobody's; here it would be IPv4's. */
	if (is_v4(p->key.source) || is_v4(p->key.target))
		return PARSED_OTHER;
	p->ttl = ip.hop_limit;
	p->length = sizeof(ip) + bpf_ntohs(ip.payload_len);
	p->l4 = L3 + sizeof(ip);
	next = ip.nexthdr;
	for (i = 0; i < EXTENSIONS; i++) {
		if (next != EXTENSION_HOPS && next != EXTENSION_ROUTING &&
		    next != EXTENSION_FRAGMENT && next != EXTENSION_DESTINATION)
			break;
		p->key.protocol = next;
		if (p->fragment == LATER_FRAGMENT)
			return PARSED_OTHER;
		if (bpf_skb_load_bytes(skb, p->l4, &extension, sizeof(extension)))
			return PARSED_BAD;
		if (next == EXTENSION_FRAGMENT) {
			if (extension.offset & bpf_htons(0xfff8))
				p->fragment = LATER_FRAGMENT;
			else if (extension.offset & bpf_htons(1))
				p->fragment = FIRST_FRAGMENT;
			p->fragment_id = extension.id;
			p->l4 += 8;
		} else {
			p->l4 += (extension.length + 1) * 8;
		}
		next = extension.next;
	}
	p->key.protocol = next;
	return parse_ports(skb, p);
}

/* Whether the packet is as long as its headers say, and they fit in. One that
 * the kernel has merged may be longer than its header can say, which then says
 * nothing. */
static __always_inline bool is_whole(struct __sk_buff *skb, struct packet *p)
{
	if (skb->gso_size && p->length == (p->v6 ? sizeof(struct ipv6hdr) : 0))
		p->length = skb->len - L3;
	return p->length <= skb->len - L3 && p->l4 - L3 + p->l4_length <= p->length;
}

static __always_inline enum parsed parse(struct __sk_buff *skb, struct packet *p)
{
	enum parsed parsed = PARSED_OTHER;

	/* What is tagged is for a device of its own, which shows it untagged. */
	if (skb->vlan_present && skb->vlan_tci & VLAN_ID)
		return PARSED_OTHER;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		parsed = parse_v4(skb, p);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		parsed = parse_v6(skb, p);
	if (parsed == PARSED_PORTS && !is_whole(skb, p))
		return PARSED_BAD;
	return parsed;
}

/* Adds to a checksum's difference that four bytes become four others. */
static __always_inline __u64 differ(__u64 sum, __u32 from, __u32 to)
{
	return sum + (__u32)~from + to;
}

static __always_inline __u32 fold32(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (__u32)((sum & 0xffffffff) + (sum >> 32));
}

static __always_inline __u16 fold16(__u64 sum)
{
	__u32 s = fold32(sum);

	s = (s & 0xffff) + (s >> 16);
	return (__u16)((s & 0xffff) + (s >> 16));
}

static __always_inline __u32 ports_of(const __be16 *source_port)
{
	return *(const __u32 *)source_port;
}

/* The difference that new addresses make to a checksum. */
static __always_inline __u64 address_difference(const struct packet *p)
{
	__u64 sum = 0;
	int i;

	if (!p->v6) {
		sum = differ(sum, p->key.source[3], p->flow.source[3]);
		return differ(sum, p->key.target[3], p->flow.target[3]);
	}
#pragma unroll
	for (i = 0; i < 4; i++) {
		sum = differ(sum, p->key.source[i], p->flow.source[i]);
		sum = differ(sum, p->key.target[i], p->flow.target[i]);
	}
	return sum;
}

struct ip_tail {
	__u8 ttl;
	__u8 protocol;
	__u16 checksum;
	__be32 source;
	__be32 target;
};

/* Writes the addresses, and the hop count, of the network header. What it does
 * to a sum of the whole packet that a device has made is told to the kernel:
 * with IPv4 nothing, since the header's own checksum makes up for it. */
static __always_inline long write_header(struct __sk_buff *skb, struct packet *p, __u64 difference,
					 __u8 ttl)
{
	struct ip_tail tail = { .ttl = ttl, .protocol = p->key.protocol };

	if (p->v6) {
		if (ttl != p->ttl && bpf_skb_store_bytes(skb, L3 + 7, &ttl, 1, BPF_F_RECOMPUTE_CSUM))
			return -1;
		return bpf_skb_store_bytes(skb, L3 + 8, p->flow.source, 32, BPF_F_RECOMPUTE_CSUM);
	}
	difference += (__u16)~(__u16)(p->ttl | p->key.protocol << 8);
	difference += (__u16)(ttl | p->key.protocol << 8);
	tail.checksum = ~fold16(difference + (__u16)~p->header_checksum);
	tail.source = p->flow.source[3];
	tail.target = p->flow.target[3];
	return bpf_skb_store_bytes(skb, L3 + 8, &tail, sizeof(tail), 0);
}

/* Makes the packet what p->flow says. */
static __always_inline long rewrite(struct __sk_buff *skb, struct packet *p, __u8 ttl)
{
	__u32 from = ports_of(&p->key.source_port), to = ports_of(&p->flow.source_port);
	__u64 difference = address_difference(p), flags = 0;
	__u32 at = p->l4 + 16;

	if (p->fragment == LATER_FRAGMENT)
		return write_header(skb, p, difference, ttl);
	if (p->key.protocol == IPPROTO_UDP) {
		at = p->l4 + 6;
		flags = BPF_F_MARK_MANGLED_0;
	}
	/* A UDP checksum of zero says that there is none. */
	if (p->key.protocol != IPPROTO_UDP || p->checksum || p->v6) {
		if (bpf_l4_csum_replace(skb, at, 0, fold32(difference), flags | BPF_F_PSEUDO_HDR))
			return -1;
		if (from != to && bpf_l4_csum_replace(skb, at, from, to, flags | 4))
			return -1;
	}
	if (from != to && bpf_skb_store_bytes(skb, p->l4, &p->flow.source_port, 4, 0))
		return -1;
	return write_header(skb, p, difference, ttl);
}

#endif
