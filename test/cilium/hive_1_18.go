// SPDX-License-Identifier: Apache-2.0

//go:build cilium_1_18

package main

import (
	"github.com/cilium/hive/cell"
	"github.com/cilium/statedb"

	daemonk8s "github.com/cilium/cilium/daemon/k8s"
	"github.com/cilium/cilium/pkg/datapath/tables"
	"github.com/cilium/cilium/pkg/kpr"
	"github.com/cilium/cilium/pkg/node"
	"github.com/cilium/cilium/pkg/option"
)

// surroundings are what the load balancer of this version asks of the rest of
// an agent.
func surroundings() cell.Cell {
	return cell.Group(
		daemonk8s.TablesCell,
		node.LocalNodeStoreCell,
		cell.Provide(
			func() *option.DaemonConfig {
				return &option.DaemonConfig{EnableIPv4: true, EnableIPv6: true, EnableInternalTrafficPolicy: true}
			},
			func() kpr.KPRConfig {
				return kpr.KPRConfig{
					KubeProxyReplacement:      option.KubeProxyReplacementTrue,
					EnableNodePort:            true,
					EnableHostPort:            true,
					EnableSessionAffinity:     true,
					EnableSVCSourceRangeCheck: true,
				}
			},
		),
		cell.Invoke(statedb.RegisterTable[tables.NodeAddress]),
	)
}
