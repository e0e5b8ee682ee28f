/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The socket path: Service addresses are translated where a process hands
 * them to the kernel, once per connection, or per datagram on an unconnected
 * socket. Replies and getpeername() show the Service's address again.
 */
#include "maps.h"
#include "peer.h"
#include "refuse.h"
#include "select.h"

#define SOCK_STREAM 1
#define SOCK_DGRAM  2

#define AF_INET6 10

#define PROTOCOL_MPTCP 262

#define ECONNREFUSED 111
#define EHOSTUNREACH 113

/* Return values of these programs. */
#define REFUSE 0
#define PASS   1

char _license[] SEC("license") = "Dual BSD/GPL";

static __always_inline __u8 protocol_of(const struct bpf_sock_addr *ctx)
{
	if (ctx->type == SOCK_STREAM &&
	    (ctx->protocol == IPPROTO_TCP || ctx->protocol == PROTOCOL_MPTCP))
		return IPPROTO_TCP;
	if (ctx->type == SOCK_DGRAM && ctx->protocol == IPPROTO_UDP)
		return IPPROTO_UDP;
	return 0;
}

static __always_inline void read_v4(struct endpoint *e, __be32 address, __u32 port)
{
	e->address[0] = 0;
	e->address[1] = 0;
	e->address[2] = MAPPED;
	e->address[3] = address;
	e->port = (__be16)port;
	e->pad = 0;
}

/* The context's words must each be read by their own constant offset. */
static __always_inline void read_v6(struct endpoint *e, const struct bpf_sock_addr *ctx)
{
	e->address[0] = ctx->user_ip6[0];
	e->address[1] = ctx->user_ip6[1];
	e->address[2] = ctx->user_ip6[2];
	e->address[3] = ctx->user_ip6[3];
	e->port = (__be16)ctx->user_port;
	e->pad = 0;
}

static __always_inline void write_v4(struct bpf_sock_addr *ctx, const struct endpoint *e)
{
	ctx->user_ip4 = e->address[3];
	ctx->user_port = e->port;
}

static __always_inline void write_v6(struct bpf_sock_addr *ctx, const struct endpoint *e)
{
	ctx->user_ip6[0] = e->address[0];
	ctx->user_ip6[1] = e->address[1];
	ctx->user_ip6[2] = e->address[2];
	ctx->user_ip6[3] = e->address[3];
	ctx->user_port = e->port;
}

static __always_inline int refuse(const struct selection *s)
{
	struct refusal *r;

	count_refusal(s);
	r = new_event(s);
	if (r) {
		r->pid = bpf_get_current_pid_tgid() >> 32;
		bpf_get_current_comm(r->command, sizeof(r->command));
		bpf_ringbuf_submit(r, 0);
	}
	if (have_set_retval)
		bpf_set_retval(s->dropped ? -EHOSTUNREACH : -ECONNREFUSED);
	return REFUSE;
}

/* Remembers the pair, so that replies and getpeername() can be turned back.
 * Only a kernel without memory forgets; the connection itself works then,
 * unless its packets must be checked. */
static __always_inline bool remember(struct bpf_sock_addr *ctx, const struct selection *s)
{
	struct bpf_sock *sk = ctx->sk;
	struct peer *p;

	if (!sk)
		return !s->unchecked;
	p = peer_of(sk, s->protocol, BPF_SK_STORAGE_GET_F_CREATE);
	if (!p)
		return !s->unchecked;
	p->frontend = s->target;
	p->backend = s->backend;
	p->word = s->word;
	p->owner = s->owner;
	p->set = s->set;
	p->unchecked = s->unchecked;
	if (s->unchecked) {
		p->pid = bpf_get_current_pid_tgid() >> 32;
		p->netns = s->netns;
	}
	return true;
}

/* A socket that dialled a Service before, UDP or a TCP one that was refused,
 * now dials an address that is no Service's. Few sockets have anything stored,
 * and for the others this is one comparison. */
static __always_inline void forget(struct bpf_sock_addr *ctx, const struct selection *s)
{
	struct bpf_sock *sk = ctx->sk;
	struct mptcp_sock *holder;

	if (!sk)
		return;
	holder = above(sk, s->protocol);
	if (holder)
		bpf_sk_storage_delete(&fairlead_peers, holder);
	else
		bpf_sk_storage_delete(&fairlead_peers, sk);
}

/* Whether the socket dials whom it names (fairlead_exempt). The mark of an
 * MPTCP socket is on the one that its process holds; where that one cannot be
 * found (have_mptcp), it is translated like any other. */
static __always_inline bool is_exempt(struct bpf_sock_addr *ctx, __u32 protocol)
{
	struct bpf_sock *sk = ctx->sk;
	struct mptcp_sock *holder;

	if (!sk)
		return false;
	holder = above(sk, protocol);
	if (holder)
		return bpf_sk_storage_get(&fairlead_exempt, holder, NULL, 0);
	return bpf_sk_storage_get(&fairlead_exempt, sk, NULL, 0);
}

static __always_inline bool ours(const struct selection *s)
{
	return s->protocol && (!host_only || s->netns == host_netns);
}

static __always_inline int on_connect(struct bpf_sock_addr *ctx, struct selection *s, bool v6)
{
	s->protocol = protocol_of(ctx);
	if (is_exempt(ctx, s->protocol))
		return PASS;
	s->netns = bpf_get_netns_cookie(ctx);
	if (!ours(s))
		return PASS;
	switch (select_backend(s, NULL)) {
	case VERDICT_FORWARD:
		break;
	case VERDICT_REFUSE:
		return refuse(s);
	default:
		forget(ctx, s);
		return PASS;
	}
	if (!remember(ctx, s))
		return refuse(s);
	if (v6)
		write_v6(ctx, &s->backend);
	else
		write_v4(ctx, &s->backend);
	return PASS;
}

/* The pair this socket used last for the frontend, from the look-aside map. */
static __always_inline void recall(struct peer *last, const struct selection *s, __u64 cookie)
{
	struct udp_key key = { .cookie = cookie, .endpoint = s->target, .direction = UDP_FORWARD };
	struct udp_pair *pair = bpf_map_lookup_elem(&fairlead_udp, &key);

	__builtin_memset(last, 0, sizeof(*last));
	if (!pair)
		return;
	last->backend = pair->endpoint;
	last->owner = pair->owner;
}

/* One direction of the pair that the socket's peer holds, before the peer
 * changes. What is noted already is not written again. */
static __noinline int note(__u64 cookie, __u32 direction, const struct peer *known)
{
	struct udp_key key = { .cookie = cookie, .direction = direction };
	struct udp_pair pair = {}, *noted;

	if (!known)
		return 0;
	key.endpoint = direction == UDP_FORWARD ? known->frontend : known->backend;
	pair.endpoint = direction == UDP_FORWARD ? known->backend : known->frontend;
	pair.owner = known->owner;
	noted = bpf_map_lookup_elem(&fairlead_udp, &key);
	if (noted && noted->owner == pair.owner && same_endpoint(&noted->endpoint, &pair.endpoint))
		return 0;
	if (bpf_map_update_elem(&fairlead_udp, &key, &pair, BPF_ANY) == 0 && !noted)
		count(COUNTER_UDP_CREATED);
	return 0;
}

/* Whether the socket last asked a backend by its own address (show_plain). */
static __always_inline bool is_plain(const struct peer *known)
{
	return same_endpoint(&known->frontend, &known->backend);
}

/* What the peer of an unconnected socket holds is about to be replaced, by
 * another frontend or by another backend of the same one. What is still on its
 * way from the old backend keeps its sender, and a frontend that the socket
 * comes back to keeps its backend. */
static __always_inline void note_known(const struct peer *known, const struct selection *s,
				       bool same, __u64 cookie)
{
	if (is_plain(known))
		return;
	if (!same)
		note(cookie, UDP_FORWARD, known);
	if (!same || !same_endpoint(&known->backend, &s->backend))
		note(cookie, UDP_REVERSE, known);
}

/* The socket talks to a backend by its own address now: what comes from there
 * is shown as it is, until the socket asks the Service again. */
static __always_inline void show_plain(struct peer *known, const struct selection *s, __u64 cookie)
{
	struct udp_key key = { .cookie = cookie, .endpoint = s->target, .direction = UDP_REVERSE };
	struct udp_pair pair = { .endpoint = s->target }, *noted;

	if (same_endpoint(&known->backend, &s->target) && !is_plain(known)) {
		note(cookie, UDP_FORWARD, known);
		known->frontend = s->target;
		known->unchecked = 0;
	}
	noted = bpf_map_lookup_elem(&fairlead_udp, &key);
	if (noted && !same_endpoint(&noted->endpoint, &s->target))
		bpf_map_update_elem(&fairlead_udp, &key, &pair, BPF_EXIST);
}

/* Whether a datagram goes to whom its socket is connected to. An IPv6 socket
 * that is connected to a mapped address passes sendmsg4 with each one, although
 * it was translated when it was connected. */
static __always_inline bool is_to_peer(const struct bpf_sock_addr *ctx, const struct endpoint *to)
{
	struct bpf_sock *sk = ctx->sk;

	return sk && sk->family == AF_INET6 && sk->state == BPF_TCP_ESTABLISHED &&
	       sk->dst_port == to->port && sk->dst_ip6[0] == to->address[0] &&
	       sk->dst_ip6[1] == to->address[1] && sk->dst_ip6[2] == to->address[2] &&
	       sk->dst_ip6[3] == to->address[3];
}

static __always_inline int on_sendmsg(struct bpf_sock_addr *ctx, struct selection *s, bool v6)
{
	struct peer last = {}, *known = NULL;
	bool same = false;
	__u64 cookie;

	s->protocol = protocol_of(ctx);
	s->netns = bpf_get_netns_cookie(ctx);
	if (s->protocol != IPPROTO_UDP || !ours(s) || (!v6 && is_to_peer(ctx, &s->target)))
		return PASS;
	if (ctx->sk)
		known = bpf_sk_storage_get(&fairlead_peers, ctx->sk, NULL, 0);
	cookie = bpf_get_socket_cookie(ctx);
	if (known) {
		last = *known;
		same = same_endpoint(&last.frontend, &s->target);
		if (!same)
			recall(&last, s, cookie);
	}
	switch (select_backend(s, &last)) {
	case VERDICT_FORWARD:
		break;
	case VERDICT_REFUSE:
		return refuse(s);
	default:
		/* A connected socket goes on to show the peer it has. */
		if (known && ctx->sk && ctx->sk->state != BPF_TCP_ESTABLISHED)
			show_plain(known, s, cookie);
		return PASS;
	}
	if (!same || last.word != s->word || !same_endpoint(&last.backend, &s->backend)) {
		if (known)
			note_known(known, s, same, cookie);
		if (!remember(ctx, s))
			return refuse(s);
	} else if (known && known->unchecked != s->unchecked) {
		known->unchecked = s->unchecked;
	}
	if (v6)
		write_v6(ctx, &s->backend);
	else
		write_v4(ctx, &s->backend);
	return PASS;
}

/* Shows the frontend instead of the backend: the peer of the socket, or, for
 * a datagram, any pair the socket used. A socket without a peer never talked
 * to a Service. */
static __always_inline bool turn_back(struct bpf_sock_addr *ctx, struct endpoint *e, bool datagram)
{
	struct udp_key key = { .direction = UDP_REVERSE };
	struct udp_pair *pair;
	struct peer *p;

	if (!ctx->sk)
		return false;
	p = bpf_sk_storage_get(&fairlead_peers, ctx->sk, NULL, 0);
	if (!p)
		return false;
	if (same_endpoint(&p->backend, e)) {
		*e = p->frontend;
		return true;
	}
	if (!datagram)
		return false;
	key.cookie = bpf_get_socket_cookie(ctx);
	key.endpoint = *e;
	pair = bpf_map_lookup_elem(&fairlead_udp, &key);
	if (!pair)
		return false;
	*e = pair->endpoint;
	return true;
}

static __always_inline void bound_v4(struct selection *s, const struct bpf_sock_addr *ctx)
{
	s->source[2] = MAPPED;
	s->source[3] = ctx->sk ? ctx->sk->src_ip4 : 0;
}

static __always_inline void bound_v6(struct selection *s, const struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	if (!sk)
		return;
	s->source[0] = sk->src_ip6[0];
	s->source[1] = sk->src_ip6[1];
	s->source[2] = sk->src_ip6[2];
	s->source[3] = sk->src_ip6[3];
}

SEC("cgroup/connect4")
int fairlead_connect4(struct bpf_sock_addr *ctx)
{
	struct selection s = {};

	read_v4(&s.target, ctx->user_ip4, ctx->user_port);
	bound_v4(&s, ctx);
	return on_connect(ctx, &s, false);
}

SEC("cgroup/connect6")
int fairlead_connect6(struct bpf_sock_addr *ctx)
{
	struct selection s = {};

	read_v6(&s.target, ctx);
	bound_v6(&s, ctx);
	return on_connect(ctx, &s, true);
}

SEC("cgroup/sendmsg4")
int fairlead_sendmsg4(struct bpf_sock_addr *ctx)
{
	struct selection s = {};

	read_v4(&s.target, ctx->user_ip4, ctx->user_port);
	bound_v4(&s, ctx);
	if (ctx->msg_src_ip4)
		s.source[3] = ctx->msg_src_ip4;
	return on_sendmsg(ctx, &s, false);
}

SEC("cgroup/sendmsg6")
int fairlead_sendmsg6(struct bpf_sock_addr *ctx)
{
	__be32 source[4] = { ctx->msg_src_ip6[0], ctx->msg_src_ip6[1], ctx->msg_src_ip6[2],
			     ctx->msg_src_ip6[3] };
	struct selection s = {};

	read_v6(&s.target, ctx);
	bound_v6(&s, ctx);
	if (!is_unspecified(source))
		__builtin_memcpy(s.source, source, sizeof(source));
	return on_sendmsg(ctx, &s, true);
}

SEC("cgroup/recvmsg4")
int fairlead_recvmsg4(struct bpf_sock_addr *ctx)
{
	struct endpoint e;

	read_v4(&e, ctx->user_ip4, ctx->user_port);
	if (turn_back(ctx, &e, true))
		write_v4(ctx, &e);
	return PASS;
}

SEC("cgroup/recvmsg6")
int fairlead_recvmsg6(struct bpf_sock_addr *ctx)
{
	struct endpoint e;

	read_v6(&e, ctx);
	if (turn_back(ctx, &e, true))
		write_v6(ctx, &e);
	return PASS;
}

SEC("cgroup/getpeername4")
int fairlead_getpeername4(struct bpf_sock_addr *ctx)
{
	struct endpoint e;

	read_v4(&e, ctx->user_ip4, ctx->user_port);
	if (turn_back(ctx, &e, false))
		write_v4(ctx, &e);
	return PASS;
}

SEC("cgroup/getpeername6")
int fairlead_getpeername6(struct bpf_sock_addr *ctx)
{
	struct endpoint e;

	read_v6(&e, ctx);
	if (turn_back(ctx, &e, false))
		write_v6(ctx, &e);
	return PASS;
}
