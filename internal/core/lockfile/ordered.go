package lockfile

import (
	"bytes"
	"encoding/json"
	"slices"

	"kici/internal/kit/ecma"
)

// Pairs is a map of texts whose order carries meaning: matrix values, include and exclude entries, env. Keys that look
// like array indices come first, ascending, as in every ECMAScript object.
type Pairs []Pair

// Pair is one member of Pairs.
type Pair struct {
	Key, Value string
}

// Get returns the value of the key.
func (p Pairs) Get(key string) (value string, ok bool) {
	for _, m := range p {
		if m.Key == key {
			return m.Value, true
		}
	}
	return "", false
}

// InOrder is the pairs with their array-index-like keys first, ascending.
func (p Pairs) InOrder() Pairs {
	out := slices.Clone(p)
	slices.SortStableFunc(out, func(a, b Pair) int { return ecma.CompareKeys(a.Key, b.Key) })
	return out
}

// MarshalJSON writes an object in order. Nil is an empty object.
func (p Pairs) MarshalJSON() ([]byte, error) {
	return marshalMembers(len(p), func(i int) (string, any) { return p[i].Key, p[i].Value })
}

// UnmarshalJSON reads an object of texts; numbers and booleans are taken as their text.
func (p *Pairs) UnmarshalJSON(raw []byte) error { return unmarshal(raw, p) }

// Ordered is a map of any values whose order carries meaning.
type Ordered []Member

// Member is one member of Ordered.
type Member struct {
	Key   string
	Value json.RawMessage
}

// MarshalJSON writes an object in order. Nil is an empty object.
func (o Ordered) MarshalJSON() ([]byte, error) {
	return marshalMembers(len(o), func(i int) (string, any) { return o[i].Key, o[i].Value })
}

// UnmarshalJSON reads an object.
func (o *Ordered) UnmarshalJSON(raw []byte) error { return unmarshal(raw, o) }

func marshalMembers(n int, member func(int) (string, any)) ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := range n {
		key, value := member(i)
		if i > 0 {
			b.WriteByte(',')
		}
		k, err := json.Marshal(key)
		if err != nil {
			return nil, err
		}
		v, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
