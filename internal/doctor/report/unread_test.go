// SPDX-License-Identifier: Apache-2.0

package report

import "testing"

func TestUnreadOnce(t *testing.T) {
	refused := Unread{Node: "n1", Command: "fairlead status -o json", Path: "1/nodes/n1/fairlead-status.json", Why: "connection refused"}
	again, elsewhere, otherwise := refused, refused, refused
	again.Path = "2/nodes/n1/fairlead-status.json"
	elsewhere.Node = "n2"
	otherwise.Why = "it took too long"
	all := unreadOnce([]Unread{refused, elsewhere, again, otherwise})
	if len(all) != 3 || all[0] != refused || all[1] != elsewhere || all[2] != otherwise {
		t.Errorf("what fails alike in two samples stands once: %+v", all)
	}
}
