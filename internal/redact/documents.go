// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// secretDocument is stricter, for what people keep files and settings in: any
// PEM block, anything that looks as if chance had made it, and what programs
// take for a secret in formats of their own.
func secretDocument(s string) bool {
	return secretText(s) || strings.Contains(s, "-----BEGIN ") || hasRandom(s) || hasKnownToken(s) || hasLogin(s) || hasEncoded(s) || hasSettingLine(s)
}

// knownTokens are how tokens and hashes of passwords begin that are too short to
// be told from names by their letters, and shortestKnown what follows at least.
var knownTokens = []string{"ghp_", "gho_", "ghs_", "ghu_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "sk_live_", "hvs.", "$2a$", "$2b$", "$2y$", "$apr1$", "$6$"}

const shortestKnown = 16

func hasKnownToken(s string) bool {
	for _, start := range knownTokens {
		for rest, found := s, true; found; {
			_, rest, found = strings.Cut(rest, start)
			end := strings.IndexFunc(rest, func(r rune) bool { return r >= utf8.RuneSelf || !isWord(byte(r)) && r != '$' && r != '/' })
			if end < 0 {
				end = len(rest)
			}
			if found && end >= shortestKnown {
				return true
			}
		}
	}
	return false
}

// hasLogin finds user:password@ where no scheme begins it, and logins as HTTP
// and curl take them.
func hasLogin(s string) bool {
	before := ""
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`,;", r) }) {
		if isLogin(before, word) || isAddressWithLogin(word) {
			return true
		}
		before = word
	}
	return false
}

// isLogin knows what stands behind -u and behind Basic.
func isLogin(before, word string) bool {
	if before == "-u" || before == "--user" {
		user, password, both := strings.Cut(word, ":")
		return both && user != "" && password != ""
	}
	if !strings.EqualFold(before, "basic") {
		return false
	}
	decoded, err := base64.StdEncoding.DecodeString(word)
	return err == nil && strings.Contains(string(decoded), ":")
}

// isAddressWithLogin leaves URLs, which are looked at as such, mail, and images:
// before their digest stands a tag.
func isAddressWithLogin(word string) bool {
	login, host, found := strings.Cut(word, "@")
	user, password, both := strings.Cut(login, ":")
	return found && both && user != "" && user != "mailto" && password != "" && host != "" &&
		!strings.HasPrefix(password, "//") && !strings.HasPrefix(host, "sha")
}

// hasEncoded finds a text with a secret in base64.
func hasEncoded(s string) bool {
	const shortest = 16
	for len(s) >= shortest {
		n := runLength(s)
		if n >= shortest && n%4 == 0 {
			decoded, err := base64.StdEncoding.DecodeString(s[:n])
			if err == nil && utf8.Valid(decoded) && secretText(string(decoded)) {
				return true
			}
		}
		s = s[min(n+1, len(s)):]
	}
	return false
}

// hasSettingLine finds a line of a secret's name and its value, as netrc and
// many servers have it, a YAML key whose value is in the next line, and an
// element of XML.
func hasSettingLine(s string) bool {
	key := false // the line before was a key with a secret's name
	for line := range strings.SplitSeq(s, "\n") {
		line = strings.TrimRight(strings.TrimSpace(line), ";")
		if line == "" || line[0] == '#' || line[0] == ';' || strings.HasPrefix(line, "//") {
			continue
		}
		words := strings.Fields(line)
		if key && !strings.HasSuffix(words[0], ":") && !strings.Contains(line, ": ") && !strings.HasSuffix(line, ":") || isSetting(words) || hasElement(line) {
			return true
		}
		name, isKey := strings.CutSuffix(line, ":")
		key = isKey && secretName(strings.TrimLeft(name, "- \"'"))
	}
	return false
}

// isSetting knows few words only, for the rest are sentences.
func isSetting(words []string) bool {
	n := len(words)
	if n < 2 || n > 3 && !slices.Contains(words, "login") {
		return false
	}
	name := words[n-2]
	return wordLength(name) == len(name) && secretName(name) && !harmless(words[n-1])
}

func hasElement(line string) bool {
	for {
		_, rest, found := strings.Cut(line, "<")
		if !found {
			return false
		}
		name := rest[:wordLength(rest)]
		value, isElement := strings.CutPrefix(rest[len(name):], ">")
		if value, _, _ = strings.Cut(value, "<"); isElement && secretName(name) && !harmless(strings.TrimSpace(value)) {
			return true
		}
		line = rest
	}
}

// A run of this many letters is long enough to tell chance from a name, by how
// evenly it uses them. Digests are left: they have no capitals.
const (
	randomLength  = 32
	randomEntropy = 4.2 // bits a letter
)

// hasRandom finds what looks like a key in base64.
func hasRandom(s string) bool {
	for len(s) >= randomLength {
		n := runLength(s)
		if n >= randomLength && isRandom(s[:n]) {
			return true
		}
		s = s[min(n+1, len(s)):]
	}
	return false
}

func isRandom(run string) bool {
	var count [256]int
	var lower, upper, digits int
	for i := range len(run) {
		c := run[i]
		count[c]++
		switch {
		case c >= 'a' && c <= 'z':
			lower++
		case c >= 'A' && c <= 'Z':
			upper++
		case c >= '0' && c <= '9':
			digits++
		}
	}
	if lower < 2 || upper < 2 || digits < 2 {
		return false
	}
	bits := 0.0
	for _, n := range count {
		if n > 0 {
			p := float64(n) / float64(len(run))
			bits -= p * math.Log2(p)
		}
	}
	return bits > randomEntropy
}
