/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The packet path: Service addresses are translated on the wire, packet by
 * packet, for clients whose sockets this node does not see.
 */
#include "maps.h"
#include "select.h"

/* TCX_NEXT, and TC_ACT_UNSPEC of clsact: whoever comes next decides. */
#define NEXT -1

char _license[] SEC("license") = "Dual BSD/GPL";

SEC("tc")
int fairlead_ingress(struct __sk_buff *skb)
{
	return NEXT;
}

SEC("tc")
int fairlead_egress(struct __sk_buff *skb)
{
	return NEXT;
}
