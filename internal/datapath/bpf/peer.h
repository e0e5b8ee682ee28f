/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whom a socket talks to, as the socket path remembers it.
 */
#ifndef FAIRLEAD_PEER_H
#define FAIRLEAD_PEER_H

#include "maps.h"

#include <linux/in.h>

/* The socket that holds the peer. What a program gets of an MPTCP socket that
 * connects, or sends, is a subflow; the process holds the socket above it, and
 * asks that one for its peer. */
static __always_inline struct mptcp_sock *above(struct bpf_sock *sk, __u32 protocol)
{
	if (have_mptcp && protocol == IPPROTO_TCP)
		return bpf_skc_to_mptcp_sock(sk);
	return NULL;
}

static __always_inline struct peer *peer_of(struct bpf_sock *sk, __u32 protocol, __u64 flags)
{
	struct mptcp_sock *holder = above(sk, protocol);

	if (holder)
		return bpf_sk_storage_get(&fairlead_peers, holder, NULL, flags);
	return bpf_sk_storage_get(&fairlead_peers, sk, NULL, flags);
}

#endif
