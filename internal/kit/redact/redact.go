// Package redact masks known secret values in text on its way out. It finds a value however common tools print it: as
// it is, line by line, in base64 and inside JSON.
package redact

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Mask stands for every secret found.
const Mask = "***"

// minLength is the shortest text that is masked, in bytes. Shorter ones would hit ordinary words everywhere and thereby
// betray themselves.
const minLength = 3

// minShifted is the shortest piece of a base64 text that is masked when the value does not start on a base64 group.
const minShifted = 8

// Redactor masks a set of values. It is safe for concurrent use; values may be added while others mask.
type Redactor struct {
	table atomic.Pointer[table]

	mu     sync.Mutex // serialises Add
	needle map[string]struct{}
}

// New makes a redactor for the values. Values shorter than three bytes are ignored.
func New(values []string) *Redactor {
	r := &Redactor{needle: map[string]struct{}{}}
	r.table.Store(noTable)
	r.Add(values...)
	return r
}

// Add masks these values too, from the next String on.
func (r *Redactor) Add(values ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.needle)
	for _, v := range values {
		for _, form := range forms(v) {
			r.needle[form] = struct{}{}
		}
	}
	if len(r.needle) == before {
		return
	}
	needles := make([]string, 0, len(r.needle))
	for n := range r.needle {
		needles = append(needles, n)
	}
	r.table.Store(buildTable(needles))
}

// Active tells whether there is anything to mask.
func (r *Redactor) Active() bool { return len(r.table.Load().byHash) > 0 }

// String is s with every value, in any of its forms, replaced by Mask. Where values overlap, the whole stretch that
// they cover becomes one mask, so that no tail of the second value stays readable.
func (r *Redactor) String(s string) string {
	t := r.table.Load()
	if len(t.byHash) == 0 || len(s) < minLength {
		return s
	}
	return t.mask(s)
}

// forms lists the texts as which a value may appear.
func forms(value string) []string {
	var out []string
	add := func(s string) {
		if len(s) >= minLength {
			out = append(out, s)
		}
	}
	if len(value) < minLength {
		return nil
	}
	add(value)
	out = append(out, base64Forms(value)...)
	out = append(out, jsonForms(value)...)
	if !strings.ContainsAny(value, "\r\n") {
		return out
	}
	for line := range strings.FieldsFuncSeq(value, func(c rune) bool { return c == '\n' || c == '\r' }) {
		// Tools print the lines of a key with or without its indentation.
		add(strings.TrimSpace(line))
	}
	return out
}

// base64Forms covers the value encoded alone (padded or not, both alphabets) and, for longer ones, the part that stays
// the same when other text precedes it, as in a basic authorization header.
func base64Forms(value string) []string {
	raw := []byte(value)
	out := []string{
		base64.StdEncoding.EncodeToString(raw), base64.RawStdEncoding.EncodeToString(raw),
		base64.URLEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw),
	}
	for shift := range 3 {
		padded := append(make([]byte, shift), raw...)
		first := (shift*8 + 5) / 6 // the first character that depends on the value alone
		last := len(padded) * 8 / 6
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if core := enc.EncodeToString(padded)[first:last]; len(core) >= minShifted {
				out = append(out, core)
			}
		}
	}
	return out
}

// jsonForms covers the value inside a JSON string, as written with and without escapes for HTML.
func jsonForms(value string) []string {
	var plain strings.Builder
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // a string always encodes
	html, _ := json.Marshal(value)
	var out []string
	for _, quoted := range []string{strings.TrimSuffix(plain.String(), "\n"), string(html)} {
		if inner := quoted[1 : len(quoted)-1]; inner != value {
			out = append(out, inner)
		}
	}
	return out
}

// table finds needles by the hash of their first three bytes: one look into a bitmap that fits the processor's cache
// settles nearly every position of a text, however many values there are.
type table struct {
	seen   [1 << 13]uint64 // bitmap over 19 bits of hash
	byHash map[uint32][]string
}

const hashBits = 19

// noTable is shared by all redactors that have nothing to mask yet, since a table weighs 64 KiB.
var noTable = &table{}

func hash3(a, b, c byte) uint32 {
	return (uint32(a)<<16 | uint32(b)<<8 | uint32(c)) * 2654435761 >> (32 - hashBits)
}

func buildTable(needles []string) *table {
	t := &table{byHash: make(map[uint32][]string, len(needles))}
	for _, n := range needles {
		h := hash3(n[0], n[1], n[2])
		t.seen[h>>6] |= 1 << (h & 63)
		t.byHash[h] = append(t.byHash[h], n)
	}
	for _, same := range t.byHash {
		slices.SortFunc(same, func(a, b string) int { return len(b) - len(a) })
	}
	return t
}

func (t *table) mask(s string) string {
	var out strings.Builder
	done, start, end := 0, -1, -1 // text before done is written; [start,end) is the stretch to mask, if start >= 0
	flush := func() {
		out.WriteString(s[done:start])
		out.WriteString(Mask)
		done, start = end, -1
	}
	for i := 0; i+minLength <= len(s); i++ {
		h := hash3(s[i], s[i+1], s[i+2])
		if t.seen[h>>6]&(1<<(h&63)) == 0 {
			continue
		}
		n := t.longest(h, s[i:])
		if n == 0 {
			continue
		}
		if start >= 0 && i >= end {
			flush()
		}
		if start < 0 {
			start, end = i, i+n
		} else {
			end = max(end, i+n)
		}
	}
	if start >= 0 {
		flush()
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

// longest is the length of the longest needle that s starts with, 0 for none.
func (t *table) longest(h uint32, s string) int {
	for _, n := range t.byHash[h] {
		if strings.HasPrefix(s, n) {
			return len(n)
		}
	}
	return 0
}
