// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
)

// A span is the text of one value within a canonical text, as Encode writes
// it: keys are sorted, and there is no space between values. So equal values
// have equal text, and what did not change need not be decoded.

// member is a field of an object. Equal keys have equal text.
type member struct{ key, value json.RawMessage }

// membersOf takes an object apart.
func membersOf(object json.RawMessage) []member {
	all := make([]member, 0, 12)
	for rest := object[1:]; rest[0] != '}'; {
		if rest[0] == ',' {
			rest = rest[1:]
		}
		key := stringLength(rest)
		value := key + len(":")
		end := value + spanLength(rest[value:])
		all = append(all, member{rest[:key], rest[value:end]})
		rest = rest[end:]
	}
	return all
}

// find returns where the field of a key is, -1 if there is none. It begins at a
// guess, for two states of an object have most keys in common.
func find(members []member, key json.RawMessage, guess int) int {
	for n := range members {
		i := (guess + n) % len(members)
		if bytes.Equal(members[i].key, key) {
			return i
		}
	}
	return -1
}

// pointer adds a key to a path.
func pointer(path string, key json.RawMessage) string {
	var plain string
	// It is the text of a string, or there would be no canonical text.
	if bytes.IndexByte(key, '\\') < 0 {
		plain = string(key[1 : len(key)-1])
	} else {
		_ = json.Unmarshal(key, &plain)
	}
	return path + "/" + escape.Replace(plain)
}

// elementsOf takes a list apart.
func elementsOf(list json.RawMessage) []json.RawMessage {
	all := make([]json.RawMessage, 0, 8)
	for rest := list[1:]; rest[0] != ']'; {
		if rest[0] == ',' {
			rest = rest[1:]
		}
		n := spanLength(rest)
		all = append(all, rest[:n])
		rest = rest[n:]
	}
	return all
}

// spanLength is how long the value is that a text begins with.
func spanLength(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += stringLength(text[i:]) - 1
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case ',', ':':
			continue
		default:
			i += plainLength(text[i:]) - 1
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(text)
}

func stringLength(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// plainLength is that of a number, true, false or null.
func plainLength(text []byte) int {
	for i, c := range text {
		if c == ',' || c == '}' || c == ']' {
			return i
		}
	}
	return len(text)
}
