/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What can be told of an address by looking at it.
 */
#ifndef FAIRLEAD_ADDRESS_H
#define FAIRLEAD_ADDRESS_H

#include "maps.h"

#define MAPPED bpf_htonl(0xffff) /* third word of ::ffff:a.b.c.d */

static __always_inline bool is_v4(const __be32 *a)
{
	return a[0] == 0 && a[1] == 0 && a[2] == MAPPED;
}

static __always_inline bool is_unspecified(const __be32 *a)
{
	return a[0] == 0 && a[1] == 0 && (a[2] == 0 || a[2] == MAPPED) && a[3] == 0;
}

/* Whether an address is the caller's own loopback. The kernel takes the
 * unspecified address for it. */
static __always_inline bool is_loopback(const __be32 *a)
{
	if (is_unspecified(a))
		return true;
	if (is_v4(a))
		return (a[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
	return a[0] == 0 && a[1] == 0 && a[2] == 0 && a[3] == bpf_htonl(1);
}

static __always_inline bool same_address(const __be32 *a, const __be32 *b)
{
	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3];
}

static __always_inline bool same_endpoint(const struct endpoint *a, const struct endpoint *b)
{
	return same_address(a->address, b->address) && a->port == b->port;
}

#endif
