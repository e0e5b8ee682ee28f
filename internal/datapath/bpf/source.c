/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Source ranges (R22) for sockets that had no source address when they
 * dialled: their first packet to the backend has one. What is refused here is
 * dropped: send() on a UDP socket says EPERM, and connect() on a TCP socket
 * runs out of time, as it does where a firewall is in the way.
 *
 * The hook sees a packet when it is complete and not yet cut to fragments.
 */
#include "maps.h"
#include "peer.h"
#include "refuse.h"
#include "select.h"

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

/* Return values of this program. */
#define DROP 0
#define PASS 1

/* Whether the kernel tells such a program who runs. A packet that is sent again
 * is sent by nobody. */
volatile const __u8 have_command = 0;

char _license[] SEC("license") = "Dual BSD/GPL";

struct packet {
	__be32 source[4];
	__be16 source_port;
	struct endpoint target;
	bool plain; /* the ports follow the addresses: no options in between */
};

static __always_inline bool read_ports(struct __sk_buff *skb, __u32 at, struct packet *p)
{
	__be16 ports[2];

	if (bpf_skb_load_bytes(skb, at, ports, sizeof(ports)))
		return false;
	p->source_port = ports[0];
	p->target.port = ports[1];
	return true;
}

static __always_inline void read_v4(struct __sk_buff *skb, struct packet *p, __u32 protocol)
{
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)))
		return;
	p->source[2] = MAPPED;
	p->source[3] = ip.saddr;
	p->target.address[2] = MAPPED;
	p->target.address[3] = ip.daddr;
	if (ip.ihl == sizeof(ip) / 4 && ip.protocol == protocol)
		p->plain = read_ports(skb, sizeof(ip), p);
}

static __always_inline void read_v6(struct __sk_buff *skb, struct packet *p, __u32 protocol)
{
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)))
		return;
	__builtin_memcpy(p->source, &ip.saddr, sizeof(p->source));
	__builtin_memcpy(p->target.address, &ip.daddr, sizeof(p->target.address));
	if (ip.nexthdr == protocol)
		p->plain = read_ports(skb, sizeof(ip), p);
}

/* Whether the packet is for the backend that is yet to be checked. An
 * unconnected socket sends to others, too. One with options may go elsewhere
 * first and reach the backend all the same. */
static __always_inline bool concerns(const struct packet *packet, const struct peer *p)
{
	return !packet->plain || same_endpoint(&packet->target, &p->backend);
}

/* The Service may be open to all by now. */
static __always_inline bool has_ranges(const struct peer *p)
{
	struct set *set = bpf_map_lookup_elem(&fairlead_sets, &p->set);

	return !set || READ_ONCE(set->owner) != p->owner ||
	       WORD_FLAGS(READ_ONCE(set->word)) & SET_RANGES;
}

static __always_inline int refuse(const struct peer *p, const struct packet *packet, __u32 protocol)
{
	struct selection s = {
		.target = p->frontend,
		.set = p->set,
		.owner = p->owner,
		.protocol = protocol,
		.reason = REASON_SOURCE_RANGE,
		.dropped = 1,
		.netns = p->netns,
	};
	struct refusal *r;

	__builtin_memcpy(s.source, packet->source, sizeof(s.source));
	count_refusal(&s);
	r = new_event(&s);
	if (r) {
		r->pid = p->pid;
		if (have_command && bpf_get_current_pid_tgid() >> 32 == p->pid)
			bpf_get_current_comm(r->command, sizeof(r->command));
		r->source_port = packet->source_port;
		bpf_ringbuf_submit(r, 0);
	}
	return DROP;
}

static __always_inline int check(struct __sk_buff *skb, struct peer *p, __u32 protocol)
{
	struct packet packet = {};

	if (skb->protocol == bpf_htons(ETH_P_IP))
		read_v4(skb, &packet, protocol);
	else
		read_v6(skb, &packet, protocol);
	if (!concerns(&packet, p))
		return PASS;
	if (has_ranges(p) && !may_come_from(p->owner, packet.source, p->frontend.address))
		return refuse(p, &packet, protocol);
	if (packet.plain)
		p->unchecked = 0;
	return PASS;
}

SEC("cgroup_skb/egress")
int fairlead_skb_egress(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct peer *p;
	__u32 protocol;

	if (!sk)
		return PASS;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return PASS;
	protocol = sk->protocol;
	p = peer_of(sk, protocol, 0);
	if (!p || !p->unchecked)
		return PASS;
	return check(skb, p, protocol);
}
