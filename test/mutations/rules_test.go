// SPDX-License-Identifier: Apache-2.0

package mutations

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// portComment is what kube-proxy writes of a Service's port: "shop/web:http", or
// "shop/web" of a port without a name.
func (f *fault) portComment() string {
	name := f.service.name().String()
	if f.service.port.Name != "" {
		name += ":" + f.service.port.Name
	}
	return name
}

// editIptables edits the rules of a Service's port. Chains are told by their
// comments.
func editIptables(content []byte, f *fault) ([]byte, error) {
	lines := strings.Split(string(content), "\n")
	name := f.portComment()
	to := func(b netip.AddrPort) string { return fmt.Sprintf(`"%s -> %s"`, name, b) }
	isJump := func(line string, b netip.AddrPort) bool { return strings.Contains(line, to(b)) }
	isDNAT := func(line string, b netip.AddrPort) bool {
		return strings.Contains(line, `"`+name+`"`) && strings.HasSuffix(line, "--to-destination "+b.String())
	}
	isFront := func(line string) bool {
		return strings.HasPrefix(line, "-A KUBE-SERVICES -d "+f.service.object.Spec.ClusterIP+"/") && strings.Contains(line, `"`+name+` cluster IP"`)
	}
	var out []string
	for _, line := range lines {
		switch f.change {
		case drop:
			if isJump(line, f.backend) {
				continue
			}
		case empty:
			if slices.ContainsFunc(f.service.backends, func(b netip.AddrPort) bool { return isJump(line, b) }) {
				continue
			}
		case swap:
			if isDNAT(line, f.backend) {
				line = strings.Replace(line, "--to-destination "+f.backend.String(), "--to-destination "+f.other.String(), 1)
			}
		case add:
			if isDNAT(line, f.backend) {
				out = append(out, strings.Replace(toNew(line), "--to-destination "+f.backend.String(), "--to-destination "+f.other.String(), 1))
			}
			if isJump(line, f.backend) {
				out = append(out, toNew(line))
			}
			if line == ":KUBE-SERVICES - [0:0]" {
				out = append(out, ":KUBE-SEP-MUTATIONMUTATION - [0:0]")
			}
		case remove:
			if isFront(line) {
				continue
			}
		case extra:
			if isFront(line) {
				out = append(out, strings.Replace(line, "-d "+f.service.object.Spec.ClusterIP+"/", "-d "+f.other.Addr().String()+"/", 1))
			}
		}
		out = append(out, line)
	}
	return []byte(strings.Join(out, "\n")), nil
}

// toNew gives a rule another endpoint's chain.
func toNew(line string) string {
	words := strings.Fields(line)
	for i, word := range words {
		if strings.HasPrefix(word, "KUBE-SEP-") {
			words[i] = "KUBE-SEP-MUTATIONMUTATION"
		}
	}
	return strings.Join(words, " ")
}

// editNftables edits the objects that `nft -j` lists. Chains are told by their
// names, which end in NAMESPACE/NAME/PROTOCOL/PORT.
func editNftables(content []byte, f *fault) ([]byte, error) {
	var all struct {
		Nftables []map[string]map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal(content, &all); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s/%s/%s", f.service.name(), strings.ToLower(string(protocolOf(f.service.port))), f.service.port.Name)
	endpoint := func(b netip.AddrPort) string { return fmt.Sprintf("%s__%s/%d", name, b.Addr(), b.Port()) }
	var out []map[string]map[string]any
	for _, object := range all.Nftables {
		if rule := object["rule"]; rule != nil {
			chain, _ := rule["chain"].(string)
			switch {
			case f.change == swap && strings.HasSuffix(chain, endpoint(f.backend)):
				redirect(rule, f.other)
			case f.change == add && strings.HasSuffix(chain, endpoint(f.backend)):
				out = append(out, copied(object, f.other))
			case (f.change == drop || f.change == empty || f.change == add) && (strings.HasPrefix(chain, "service-") || strings.HasPrefix(chain, "local-")) && strings.HasSuffix(chain, "-"+name):
				if !choose(rule, f, endpoint) {
					continue
				}
			}
		}
		if m := object["map"]; m != nil && m["name"] == "service-ips" {
			frontends(m, f)
		}
		if chain := object["chain"]; chain != nil && f.change == add && strings.HasSuffix(chain["name"].(string), endpoint(f.backend)) {
			out = append(out, map[string]map[string]any{"chain": {"family": chain["family"], "table": chain["table"], "name": newChain, "handle": 999}})
		}
		out = append(out, object)
	}
	all.Nftables = out
	return json.Marshal(all)
}

const newChain = "endpoint-MUTATION"

// redirect changes where a rule sends connections.
func redirect(rule map[string]any, to netip.AddrPort) {
	for _, expr := range rule["expr"].([]any) {
		if dnat, ok := expr.(map[string]any)["dnat"].(map[string]any); ok {
			dnat["addr"], dnat["port"] = to.Addr().String(), to.Port()
		}
	}
}

// copied is a rule in the chain of the added endpoint.
func copied(object map[string]map[string]any, to netip.AddrPort) map[string]map[string]any {
	text, _ := json.Marshal(object)
	var out map[string]map[string]any
	_ = json.Unmarshal(text, &out)
	out["rule"]["chain"] = newChain
	redirect(out["rule"], to)
	return out
}

// choose changes among which endpoints a rule chooses, and says whether the rule
// still chooses any.
func choose(rule map[string]any, f *fault, endpoint func(netip.AddrPort) string) bool {
	gone := func(target string) bool {
		if f.change == empty {
			return strings.HasPrefix(target, "endpoint-")
		}
		return f.change == drop && strings.HasSuffix(target, endpoint(f.backend))
	}
	for _, expr := range rule["expr"].([]any) {
		e := expr.(map[string]any)
		if target := targetOf(e); target != "" && gone(target) {
			return false
		}
		vmap, ok := e["vmap"].(map[string]any)
		if !ok {
			continue
		}
		data, ok := vmap["data"].(map[string]any)
		if !ok {
			continue
		}
		set := slices.DeleteFunc(data["set"].([]any), func(element any) bool { return gone(targetOf(element.([]any)[1].(map[string]any))) })
		if f.change == add && slices.ContainsFunc(set, func(element any) bool {
			return strings.HasSuffix(targetOf(element.([]any)[1].(map[string]any)), endpoint(f.backend))
		}) {
			set = append(set, []any{len(set), map[string]any{"goto": map[string]any{"target": newChain}}})
		}
		if len(set) == 0 {
			return false
		}
		data["set"] = set
	}
	return true
}

func targetOf(verdict map[string]any) string {
	for _, word := range []string{"goto", "jump"} {
		if to, ok := verdict[word].(map[string]any); ok {
			target, _ := to["target"].(string)
			return target
		}
	}
	return ""
}

// frontends takes the Service's ClusterIP away, or adds another address to it.
func frontends(m map[string]any, f *fault) {
	elements, _ := m["elem"].([]any)
	var out []any
	for _, element := range elements {
		key, _ := element.([]any)[0].(map[string]any)
		concat, _ := key["concat"].([]any)
		own := len(concat) == 3 && concat[0] == f.service.object.Spec.ClusterIP && fmt.Sprint(concat[2]) == fmt.Sprint(f.service.port.Port) &&
			strings.EqualFold(fmt.Sprint(concat[1]), string(protocolOf(f.service.port)))
		if own && f.change == remove {
			continue
		}
		if own && f.change == extra {
			out = append(out, []any{map[string]any{"concat": []any{f.other.Addr().String(), concat[1], concat[2]}}, element.([]any)[1]})
		}
		out = append(out, element)
	}
	m["elem"] = out
}
