// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"strings"
)

// What names of values that must not be known have in them, without their
// separators and in lower case; and what the names of things end with that only
// tell where such a value is, or what it is for.
var (
	secretWords = []string{"password", "passwd", "passphrase", "secret", "token", "apikey", "accesskey", "privatekey",
		"sharedkey", "accountkey", "encryptionkey", "signingkey", "masterkey", "clientkeydata", "credential", "authorization",
		"bearer", "basicauth", "requirepass", "dockerconfigjson", "dockercfg"}
	secretEnds = []string{".key", "_key", "-key", "_pass", "-pass", ".pass", "_pwd", "-pwd", ".pwd", "/pwd", "_psk", "-psk", ".psk", "/psk"}
	placeEnds  = []string{"name", "names", "namespace", "ref", "path", "file", "dir", "type", "kind", "mode", "ttl", "seconds",
		"expiration", "audience", "audiences", "policy", "issuer", "url", "uri", "endpoint", "class", "provider", "version"}
)

var separators = strings.NewReplacer("-", "", "_", "", ".", "", "/", "", " ", "")

// secretName says whether a value of this name must not be known.
func secretName(name string) bool {
	name = strings.ToLower(name)
	if name == "auth" || name == "pass" || name == "pwd" || name == "psk" || hasSuffix(name, secretEnds) {
		return true
	}
	if len(name) < len("token") {
		return false
	}
	plain := separators.Replace(name)
	return contains(plain, secretWords) && !hasSuffix(plain, placeEnds)
}

func hasSuffix(s string, ends []string) bool {
	for _, end := range ends {
		if strings.HasSuffix(s, end) {
			return true
		}
	}
	return false
}

func contains(s string, words []string) bool {
	for _, word := range words {
		if strings.Contains(s, word) {
			return true
		}
	}
	return false
}

// harmless are values of which a secret's name says nothing, and what stands for
// one that was left out.
func harmless(value string) bool {
	return value == "" || value == "true" || value == "false" || strings.HasPrefix(value, leftOutWord)
}

// leftOutWord is how all begins that stands for a value.
const leftOutWord = "(left"

// secretText says whether a text has something in it that must not be known,
// whatever it is called: a private key, a web token, a bearer token, a URL with
// a password, or a value that has a secret's name.
func secretText(s string) bool {
	if len(s) >= len("bearer ")+shortestBearer {
		if strings.Contains(s, "PRIVATE KEY-----") || hasBearer(s) || hasWebToken(s) || hasEncodedKey(s) {
			return true
		}
	}
	colon := strings.IndexByte(s, ':') >= 0
	return colon && (hasURLPassword(s) || hasManifest(s)) || (colon || strings.IndexByte(s, '=') >= 0) && hasNamedSecret(s) || hasFlag(s)
}

// hasURLPassword finds scheme://user:password@host.
func hasURLPassword(s string) bool {
	for {
		_, rest, found := strings.Cut(s, "://")
		if !found {
			return false
		}
		authority := rest
		if end := strings.IndexAny(rest, "/?# \t\r\n\"'`"); end >= 0 {
			authority = rest[:end]
		}
		if at := strings.LastIndexByte(authority, '@'); at >= 0 {
			if _, password, found := strings.Cut(authority[:at], ":"); found && password != "" {
				return true
			}
		}
		s = rest
	}
}

// shortestBearer tells a token from the word that may follow in a sentence.
const shortestBearer = 8

func hasBearer(s string) bool {
	const word = "bearer "
	if strings.IndexByte(s, ' ') < 0 {
		return false
	}
	for i := 0; i+len(word) < len(s); i++ {
		if s[i]|0x20 == 'b' && strings.EqualFold(s[i:i+len(word)], word) && runLength(strings.TrimLeft(s[i+len(word):], " ")) >= shortestBearer {
			return true
		}
	}
	return false
}

// hasWebToken finds two parts in base64 that begin as JSON does, and a dot
// after each.
func hasWebToken(s string) bool {
	for {
		at := strings.Index(s, "eyJ")
		if at < 0 {
			return false
		}
		s = s[at:]
		head := runLength(s)
		if head > 10 && strings.HasPrefix(s[head:], ".eyJ") {
			return true
		}
		s = s[len("eyJ"):]
	}
}

// pemInBase64 is how PEM begins: nine letters, so that no later one shows in it.
var pemInBase64 = base64.StdEncoding.EncodeToString([]byte("-----BEGI"))

// hasEncodedKey finds a private key in base64. What an authority signs is public.
func hasEncodedKey(s string) bool {
	at := strings.Index(s, pemInBase64)
	if at < 0 {
		return false
	}
	run := s[at:]
	run = run[:runLength(run)/4*4]
	decoded, err := base64.StdEncoding.DecodeString(run)
	return err != nil || strings.Contains(string(decoded), "PRIVATE KEY")
}

// hasNamedSecret finds name=value, name: value and "name":"value" where the
// name is one of a secret.
func hasNamedSecret(s string) bool {
	for i := range len(s) {
		if s[i] != '=' && s[i] != ':' {
			continue
		}
		before := strings.TrimRight(s[:i], " \t")
		name := strings.TrimRight(before, `"'\`)
		quoted := len(name) < len(before)
		after := s[i+1:]
		value := strings.TrimLeft(after, " \t\"'\\")
		if s[i] == ':' && !quoted && len(value) == len(after) && !isBlank(after) {
			continue // a:b names something, as system:node does
		}
		start := len(name)
		for start > 0 && isWord(name[start-1]) {
			start--
		}
		word := strings.Trim(name[start:], "-")
		if secretName(word) && !harmless(firstWord(value)) || isNameOf(word) && namesSecret(value) {
			return true
		}
	}
	return false
}

func isNameOf(word string) bool { return word == "name" || word == "key" }

// namesSecret finds NAME and then value, as in environments, where the name is
// one of a secret.
func namesSecret(s string) bool {
	name := firstWord(s)
	after, found := strings.CutPrefix(strings.TrimLeft(s[len(name):], " \t\r\n\"',\\"), "value")
	return found && secretName(name) && (after == "" || !isWord(after[0]))
}

// hasFlag finds --password and its value behind a space, be they quoted or not.
func hasFlag(s string) bool {
	for {
		_, rest, found := strings.Cut(s, "--")
		if !found {
			return false
		}
		name := rest[:wordLength(rest)]
		after := rest[len(name):]
		value := strings.TrimLeft(after, " \t\"',\\")
		if len(value) < len(after) && !strings.HasPrefix(value, "-") && secretName(name) && !harmless(firstWord(value)) {
			return true
		}
		s = rest
	}
}

// hasManifest finds a Secret as a manifest, in YAML or JSON, but no reference to
// one.
func hasManifest(s string) bool {
	if strings.Contains(s, "stringData") {
		return true
	}
	if !strings.Contains(s, "data") {
		return false
	}
	for {
		_, rest, found := strings.Cut(s, "kind")
		if !found {
			return false
		}
		after, found := strings.CutPrefix(strings.TrimLeft(rest, " \t\"':\\"), "Secret")
		if found && (after == "" || !isWord(after[0])) {
			return true
		}
		s = rest
	}
}

func wordLength(s string) int {
	for i := range len(s) {
		if !isWord(s[i]) {
			return i
		}
	}
	return len(s)
}

func isBlank(s string) bool { return s != "" && (s[0] == '\n' || s[0] == '\r') }

func firstWord(s string) string {
	if end := strings.IndexAny(s, " \t\r\n\"',;&}"); end >= 0 {
		return s[:end]
	}
	return s
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
}

// runLength is how many letters of base64, of either alphabet, a text begins
// with.
func runLength(s string) int {
	for i := range len(s) {
		if c := s[i]; !isWord(c) && c != '+' && c != '/' && c != '=' || c == '.' {
			return i
		}
	}
	return len(s)
}
