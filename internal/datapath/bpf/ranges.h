/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The ranges of addresses that the map fairlead_ranges holds: from where a VIP
 * may be dialled (R22), and from which ClusterIPs are given (R38).
 */
#ifndef FAIRLEAD_RANGES_H
#define FAIRLEAD_RANGES_H

#include "address.h"
#include "maps.h"

/* No Service port has this owner. */
#define OWNER_SERVICE_CIDRS 0

static __always_inline bool in_ranges(__u32 owner, const __be32 *source)
{
	struct range_key k = { .prefixlen = 160, .owner = owner };

	__builtin_memcpy(k.address, source, sizeof(k.address));
	return bpf_map_lookup_elem(&fairlead_ranges, &k) != NULL;
}

static __always_inline bool node_in_ranges(__u32 owner, bool v4)
{
	__u32 family = v4 ? PRIMARY_IPV4 : PRIMARY_IPV6;
	const struct address *node = bpf_map_lookup_elem(&fairlead_primary, &family);

	return node && !is_unspecified(node->address) && in_ranges(owner, node->address);
}

/* R22. A node that has the VIP as an address of its own reaches it from there:
 * the VIP is in range where this node is. */
static __always_inline bool may_come_from(__u32 owner, const __be32 *source, const __be32 *dialled)
{
	return in_ranges(owner, source) ||
	       (same_address(source, dialled) && node_in_ranges(owner, is_v4(dialled)));
}

/* Whether the address is of a range from which ClusterIPs are given. */
static __always_inline bool in_service_cidrs(const __be32 *address)
{
	return have_service_cidrs && in_ranges(OWNER_SERVICE_CIDRS, address);
}

#endif
