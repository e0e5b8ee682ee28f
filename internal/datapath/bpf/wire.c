/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The packet path: Service addresses are translated on the wire, packet by
 * packet, for clients whose sockets this node does not see: those on other
 * machines, and pods on devices that the operator names.
 *
 * What a client sends is translated as it arrives. If the backend is reached
 * through a device of ours that faces other machines, the node's own address
 * becomes the source and the packet leaves at once, past the stack; so does
 * the answer. Otherwise the packet goes on through the stack with its source
 * as it is, and the answer is translated as it leaves by the client's device.
 * So both directions of a flow traverse netfilter, or neither does.
 */
#include "answer.h"
#include "flow.h"
#include "icmp.h"
#include "packet.h"
#include "refuse.h"
#include "route.h"

/* Settings that the loader fixes. */
volatile const __u8 inside = 0;		 /* the device is a pod's of this node */
volatile const __u16 snat_first = 61000; /* the node's own ports for others' connections */
volatile const __u16 snat_last = 65535;

/* How many ports are tried for a flow. */
#define PORT_TRIES   16
#define UNPRIVILEGED 1024 /* the first port that any client may have */
/* How many backends are tried for a flow whose answers would be another's. */
#define BACKEND_TRIES 3

char _license[] SEC("license") = "Dual BSD/GPL";

/* Ends a packet that nothing was done to yet. */
static __always_inline int refuse(struct __sk_buff *skb, struct packet *p)
{
	report_refusal(&p->selection, p->key.source_port, skb->ifindex);
	if (p->selection.dropped)
		return DROP;
	return answer_refused(skb, p);
}

/* Finds the way of the packet into p->flow; else says what becomes of it. */
static __always_inline int find_path(struct __sk_buff *skb, struct packet *p, __u32 length)
{
	long found = find_route(skb, p, length);

	if (is_route(found)) {
		take_path(p);
		return NEXT;
	}
	if (found == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return answer_too_big(skb, p, p->route.mtu_result);
	count(COUNTER_UNROUTABLE);
	return DROP;
}

/* Sends the packet past the stack as what p->flow says; f is where that stands
 * in a map, or NULL. */
static __noinline int forward(struct __sk_buff *skb, struct packet *p, struct flow *f)
{
	__u16 length;
	int verdict;

	if (!p)
		return DROP;
	length = wire_length(skb, p);
	if (!knows_path(&p->flow.path, length)) {
		verdict = find_path(skb, p, length);
		if (verdict != NEXT)
			return verdict;
		if (f)
			f->path = p->flow.path;
	}
	if (p->ttl <= 1)
		return answer_expired(skb, p);
	if (rewrite(skb, p, p->ttl - 1)) {
		count(COUNTER_FAILED);
		return DROP;
	}
	return leave(skb, p);
}

/* Translates the packet as its flow says. */
static __always_inline int translate(struct __sk_buff *skb, struct packet *p, struct flow *f)
{
	if (p->fragment == FIRST_FRAGMENT)
		remember_ports(p);
	if (p->flow.flags & FLOW_REDIRECT)
		return forward(skb, p, f);
	if (rewrite(skb, p, p->ttl)) {
		count(COUNTER_FAILED);
		return DROP;
	}
	return NEXT;
}

/* How the kernel names the packet where sockets are looked up; returns how long
 * that is. */
static __always_inline __u32 set_tuple(struct bpf_sock_tuple *tuple, const struct flow_key *k,
				       bool v6)
{
	if (v6) {
		__builtin_memcpy(tuple->ipv6.saddr, k->source, sizeof(tuple->ipv6.saddr));
		__builtin_memcpy(tuple->ipv6.daddr, k->target, sizeof(tuple->ipv6.daddr));
		tuple->ipv6.sport = k->source_port;
		tuple->ipv6.dport = k->target_port;
		return sizeof(tuple->ipv6);
	}
	tuple->ipv4.saddr = k->source[3];
	tuple->ipv4.daddr = k->target[3];
	tuple->ipv4.sport = k->source_port;
	tuple->ipv4.dport = k->target_port;
	return sizeof(tuple->ipv4);
}

/* Whether a socket of the node would take the answers that come to p->other. */
static __always_inline bool has_socket(struct __sk_buff *skb, struct packet *p)
{
	struct bpf_sock_tuple tuple = {};
	__u32 size = set_tuple(&tuple, &p->other, p->v6);
	struct bpf_sock *sk;

	if (p->key.protocol == IPPROTO_UDP)
		sk = bpf_sk_lookup_udp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	else
		sk = bpf_skc_lookup_tcp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return false;
	bpf_sk_release(sk);
	return true;
}

/* Whether the datagram answers a connected socket of the node. The kernel may
 * have given it a port that is a NodePort, too. */
static __noinline int is_awaited(struct __sk_buff *skb, struct packet *p)
{
	struct bpf_sock_tuple tuple = {};
	struct bpf_sock *sk;
	bool connected;

	if (!p || p->key.protocol != IPPROTO_UDP)
		return false;
	sk = bpf_sk_lookup_udp(skb, &tuple, set_tuple(&tuple, &p->key, p->v6),
			       BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return false;
	connected = sk->state == BPF_TCP_ESTABLISHED;
	bpf_sk_release(sk);
	return connected;
}

/* Takes the answers to a port for the flow. It is not static so that the
 * verifier looks at it once, not at each port that is tried. It finds the
 * packet by itself, since kernels before 6.1 take nothing that such a function
 * is given as the key of a map. */
__noinline int claim_port(struct __sk_buff *skb, __u32 port, __u32 yields)
{
	struct packet *p = this_packet();

	if (!p)
		return false;
	p->other.target_port = bpf_htons(port);
	if (p->flow.flags & FLOW_SNAT && has_socket(skb, p))
		return false;
	return claim(p, yields);
}

/* Finds a port for the backend to see, if there is one that is free, or whose
 * flow is over. */
static __noinline int claim_some_port(struct __sk_buff *skb, __u32 first, __u32 last)
{
	__u32 n = last - first + 1, start, i;

	start = (__u32)((__u64)bpf_get_prandom_u32() * n >> 32);
	for (i = 0; i < 2 * PORT_TRIES; i++)
		if (claim_port(skb, first + (start + i % PORT_TRIES) % n, i >= PORT_TRIES))
			return true;
	return false;
}

/* Makes sure that the backend's answers are told from those of other flows. A
 * client that uses one port for two Service addresses is seen by a backend of
 * both with its own port once, and with some other port then. A pod may use the
 * port for the backend's own address as well, which no program would see: it
 * is seen with a port that it has not got from its kernel. */
static __noinline int claim_answers(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return false;
	set_other(p);
	if (inside || p->flow.flags & FLOW_SNAT) {
		if (claim_some_port(skb, snat_first, snat_last))
			return true;
		count(COUNTER_PORTS_EXHAUSTED);
		return false;
	}
	if (claim_port(skb, bpf_ntohs(p->key.source_port), true) ||
	    claim_some_port(skb, UNPRIVILEGED, 65535))
		return true;
	count(COUNTER_PORTS_EXHAUSTED);
	return false;
}

/* Whether the backend can see the address of the node in p->flow.source. */
static __always_inline bool take_source(struct packet *p)
{
	p->flow.flags |= FLOW_REDIRECT | FLOW_SNAT;
	p->flow.at = AT_INGRESS;
	return !is_unspecified(p->flow.source);
}

/* R37: a pod's address is kept, but a pod that meets itself must not answer
 * itself directly. */
static __always_inline bool choose_inside(struct packet *p)
{
	__u32 family = p->v6 ? PRIMARY_IPV6 : PRIMARY_IPV4;
	struct address *node;

	if (!same_address(p->flow.target, p->flow.source))
		return true;
	node = bpf_map_lookup_elem(&fairlead_primary, &family);
	if (!node)
		return false;
	__builtin_memcpy(p->flow.source, node->address, sizeof(p->flow.source));
	return take_source(p);
}

/* The device of ours by which p->flow leaves; NULL if it leads to a pod or to
 * the node itself, or if the stack has to say why it leads nowhere. */
static __always_inline struct device *way_out(struct __sk_buff *skb, struct packet *p)
{
	long found = find_route(skb, p, 0);
	__u32 out = p->route.ifindex;
	struct device *d;

	if (!is_route(found) && found != BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return NULL;
	d = bpf_map_lookup_elem(&fairlead_devices, &out);
	return d && d->index == out ? d : NULL;
}

/* Decides how the flow reaches its backend, and what the backend sees. */
static __always_inline bool choose_way(struct __sk_buff *skb, struct packet *p)
{
	struct device *d;

	p->flow.flags = inside ? FLOW_INSIDE : 0;
	p->flow.at = AT_EGRESS;
	if (inside)
		return choose_inside(p);
	d = way_out(skb, p);
	if (!d)
		return true;
	__builtin_memcpy(p->flow.source, p->v6 ? d->source6 : d->source4, sizeof(p->flow.source));
	return take_source(p);
}

/* Makes the flow's two elements. */
static __always_inline bool make_flow(struct __sk_buff *skb, struct packet *p)
{
	const struct selection *s = &p->selection;
	__u64 now = bpf_ktime_get_coarse_ns();

	__builtin_memset(&p->flow, 0, sizeof(p->flow));
	__builtin_memcpy(p->flow.source, p->key.source, sizeof(p->flow.source));
	p->flow.source_port = p->key.source_port;
	__builtin_memcpy(p->flow.target, s->backend.address, sizeof(p->flow.target));
	p->flow.target_port = s->backend.port;
	p->flow.owner = s->owner;
	p->flow.set = s->set;
	p->flow.used = now;
	if (!choose_way(skb, p))
		return false;
	p->reply = p->flow;
	__builtin_memcpy(p->reply.source, p->key.target, sizeof(p->reply.source));
	__builtin_memcpy(p->reply.target, p->key.source, sizeof(p->reply.target));
	p->reply.source_port = p->key.target_port;
	p->reply.target_port = p->key.source_port;
	p->reply.flags |= FLOW_REPLY;
	p->reply.at = AT_INGRESS;
	if (!claim_answers(skb, p))
		return false;
	p->flow.source_port = p->other.target_port;
	p->flow.seal = flow_seal(&p->key, &p->flow);
	if (bpf_map_update_elem(&fairlead_embryos, &p->key, &p->flow, BPF_ANY) == 0)
		count(COUNTER_EMBRYOS_CREATED);
	return true;
}

/* The same for the same client and Service on every node, and evenly spread. */
static __always_inline __u32 hash_of(const struct flow_key *k)
{
	__u32 h = k->protocol;
	int i;

#pragma unroll
	for (i = 0; i < 4; i++) {
		h = (h ^ k->source[i]) * 0x85ebca6b;
		h ^= h >> 15;
		h = (h ^ k->target[i]) * 0xc2b2ae35;
		h ^= h >> 13;
	}
	h = (h ^ ports_of(&k->source_port)) * 0x85ebca6b;
	h ^= h >> 13;
	h *= 0xc2b2ae35;
	return h ^ h >> 16;
}

static __always_inline void set_selection(struct packet *p, __u32 known)
{
	struct selection *s = &p->selection;

	__builtin_memset(s, 0, sizeof(*s));
	__builtin_memcpy(s->target.address, p->key.target, sizeof(s->target.address));
	s->target.port = p->key.target_port;
	s->protocol = p->key.protocol;
	s->wire = 1;
	s->outside = !inside;
	s->known = known;
	__builtin_memcpy(s->source, p->key.source, sizeof(s->source));
}

/* A packet to a Service amid a connection that is not known here: it was opened
 * before this node took part, or it was forgotten. */
static __always_inline int unknown_flow(struct __sk_buff *skb, struct packet *p)
{
	switch (select_backend(&p->selection, NULL)) {
	case VERDICT_FORWARD:
		break;
	case VERDICT_REFUSE:
		return refuse(skb, p);
	default:
		return NEXT;
	}
	count(COUNTER_NO_FLOW);
	p->selection.reason = REASON_NO_FLOW;
	p->selection.dropped = 0;
	return refuse(skb, p);
}

/* Whether an address may be the source of a packet on the wire. */
static __always_inline bool is_sender(const __be32 *a)
{
	if (is_loopback(a))
		return false;
	if (is_v4(a))
		return (a[3] & bpf_htonl(0xf0000000)) != bpf_htonl(0xe0000000) && a[3] != 0xffffffff;
	return (a[0] & bpf_htonl(0xff000000)) != bpf_htonl(0xff000000);
}

/* The first packet of a flow, or one of none that is known. */
static __noinline int open_flow(struct __sk_buff *skb, struct packet *p, __u32 flags)
{
	bool opens;
	__u32 i;

	if (!p)
		return NEXT;
	if (p->fragment == LATER_FRAGMENT) {
		count(COUNTER_FRAGMENTS_UNKNOWN);
		return NEXT;
	}
	opens = p->key.protocol != IPPROTO_TCP || (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	/* The node's own connections, and where there is none the stack says so. */
	if (flags & ADDRESS_NODE && (!opens || is_awaited(skb, p)))
		return NEXT;
	/* Nobody speaks from such an address, nobody else from the node's own:
	 * the stack says so. */
	if (!is_sender(p->key.source) || (!inside && known_of(p->key.source) & ADDRESS_NODE))
		return NEXT;
	set_selection(p, flags);
	if (!opens)
		return unknown_flow(skb, p);
	p->selection.hash = hash_of(&p->key);
	for (i = 0; i < BACKEND_TRIES; i++) {
		switch (select_backend(&p->selection, NULL)) {
		case VERDICT_FORWARD:
			break;
		case VERDICT_REFUSE:
			return refuse(skb, p);
		default:
			return NEXT;
		}
		if (make_flow(skb, p))
			return translate(skb, p, NULL);
	}
	p->selection.reason = REASON_NO_PORT;
	p->selection.dropped = 0;
	return refuse(skb, p);
}

/* Whether the client still waits for an answer in a flow through the stack that
 * would leave by a device of ours by now: there was no such device, or no
 * route, when it was opened. It is asked once a second. */
static __noinline int has_lost_way(struct __sk_buff *skb, struct packet *p)
{
	if (!p || p->flow.flags & (FLOW_REPLY | FLOW_REDIRECT | FLOW_INSIDE) ||
	    age_of(&p->flow) <= SECOND)
		return false;
	if (p->key.protocol == IPPROTO_TCP && (p->tcp_flags & (TCP_SYN | TCP_ACK)) != TCP_SYN)
		return false;
	return way_out(skb, p) != NULL;
}

/* What the map has of the packet's flow; NULL if it goes on in none. */
static __always_inline struct flow *resume(struct __sk_buff *skb, struct packet *p,
					   struct flow *f, bool embryo)
{
	if (!take_flow(f, p))
		return NULL;
	if (!goes_on(f, p, embryo) || (embryo && has_lost_way(skb, p))) {
		forget_flow(p);
		return NULL;
	}
	note_packet(f, p, embryo);
	if (!embryo)
		return f;
	if (p->flow.flags & FLOW_REPLY)
		note_answer(f, p);
	else
		confirm(p);
	return f;
}

static __always_inline int on_ports(struct __sk_buff *skb, struct packet *p, __u8 at)
{
	__u32 flags = 0;
	struct flow *f;

	if (p->fragment == LATER_FRAGMENT)
		recall_ports(p);
	f = resume(skb, p, find_confirmed(&p->key), false);
	if (f)
		return translate(skb, p, f);
	/* Most packets are for addresses that are neither the node's nor a
	 * Service's. */
	if (at == AT_INGRESS) {
		flags = known_of(p->key.target);
		if (!flags && !in_service_cidrs(p->key.target))
			return NEXT;
	}
	f = resume(skb, p, find_embryo(&p->key), true);
	if (f)
		return translate(skb, p, f);
	if (at == AT_EGRESS)
		return NEXT;
	return open_flow(skb, p, flags);
}

static __always_inline int on_wire(struct __sk_buff *skb, __u8 at)
{
	struct packet *p = new_packet(at);

	/* A device may show packets that are other machines'. Those of a pod on
	 * a bridge are for the bridge. */
	if (!p || (at == AT_INGRESS && !inside && skb->pkt_type != PACKET_HOST))
		return NEXT;
	if (at == AT_EGRESS && skb->cb[1] == TRANSLATED)
		return NEXT;
	switch (parse(skb, p)) {
	case PARSED_PORTS:
		return on_ports(skb, p, at);
	case PARSED_ICMP:
		return on_icmp(skb, p);
	case PARSED_BAD:
		if (at == AT_INGRESS && known_of(p->key.target) & (ADDRESS_SERVICE | ADDRESS_NODEPORT))
			count(COUNTER_MALFORMED);
		return NEXT;
	default:
		return NEXT;
	}
}

SEC("tc")
int fairlead_ingress(struct __sk_buff *skb)
{
	return on_wire(skb, AT_INGRESS);
}

SEC("tc")
int fairlead_egress(struct __sk_buff *skb)
{
	return on_wire(skb, AT_EGRESS);
}
