// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead-io/fairlead/internal/api"
	"github.com/fairlead-io/fairlead/internal/model"
)

func TestStatusTellsWhatTheNodeListensOn(t *testing.T) {
	listener := func(at string, p model.Protocol) model.Listener {
		return model.Listener{AddrPort: netip.MustParseAddrPort(at), Protocol: p}
	}
	all := []model.Listener{
		listener("[::]:22", model.TCP), listener("10.0.0.1:6443", model.TCP), listener("127.0.0.53:53", model.UDP),
		listener("10.0.0.1:6443", model.TCP), // a second socket on the same port
	}
	texts := listeningOn(all)
	if want := []string{"10.0.0.1:6443/TCP", "127.0.0.53:53/UDP", "[::]:22/TCP"}; !slices.Equal(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
	for _, text := range texts {
		at, protocol, err := api.ParseTarget(text)
		if err != nil || !slices.Contains(all, model.Listener{AddrPort: at, Protocol: protocol}) {
			t.Errorf("%q is read back as %v %v, %v", text, at, protocol, err)
		}
	}
	if none := listeningOn(nil); none == nil || len(none) != 0 {
		t.Errorf("a node that listens on nothing has %v, which must be an empty list", none)
	}
}
