// SPDX-License-Identifier: Apache-2.0

//go:build !cilium_1_18

package main

import (
	"github.com/cilium/hive/cell"

	cmtypes "github.com/cilium/cilium/pkg/clustermesh/types"
	k8stables "github.com/cilium/cilium/pkg/k8s/tables"
	"github.com/cilium/cilium/pkg/kpr"
	"github.com/cilium/cilium/pkg/lbipamconfig"
	"github.com/cilium/cilium/pkg/node"
	"github.com/cilium/cilium/pkg/nodeipamconfig"
	"github.com/cilium/cilium/pkg/option"
)

// surroundings are what the load balancer of this version asks of the rest of
// an agent.
func surroundings() cell.Cell {
	return cell.Group(
		k8stables.TablesCell,
		node.LocalNodeStoreTestCell,
		lbipamconfig.Cell,
		nodeipamconfig.Cell,
		cell.Provide(
			func() cmtypes.ClusterInfo { return cmtypes.ClusterInfo{} },
			func() *option.DaemonConfig { return &option.DaemonConfig{EnableIPv4: true, EnableIPv6: true} },
			func() kpr.KPRConfig { return kpr.KPRConfig{KubeProxyReplacement: true, EnableSocketLB: true} },
		),
	)
}
