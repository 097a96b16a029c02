package ci

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
)

// NamespacedSecrets are the secrets of a job's contexts. Agents lay the contexts over each other in the order in which they
// stand, so of a key in several the last one's value counts.
type NamespacedSecrets []ContextSecrets

// ContextSecrets are the secrets of one context by their keys.
type ContextSecrets struct {
	Context string // as the job binds it
	Secrets map[string]string
}

// Put puts a context behind all others. Where it stands among them it is moved.
func (n NamespacedSecrets) Put(context string, secrets map[string]string) NamespacedSecrets {
	n = slices.DeleteFunc(n, func(c ContextSecrets) bool { return c.Context == context })
	return append(n, ContextSecrets{context, secrets})
}

// Of are the secrets of a context, nil for one that has none.
func (n NamespacedSecrets) Of(context string) map[string]string {
	for _, c := range n {
		if c.Context == context {
			return c.Secrets
		}
	}
	return nil
}

// MarshalJSON writes an object whose members stand in order.
func (n NamespacedSecrets) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, c := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(c.Context)
		if err != nil {
			return nil, err
		}
		secrets, err := json.Marshal(c.Secrets)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(secrets)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// UnmarshalJSON reads such an object, or null.
func (n *NamespacedSecrets) UnmarshalJSON(raw []byte) error {
	*n = nil
	d := json.NewDecoder(bytes.NewReader(raw))
	switch open, err := d.Token(); {
	case err != nil:
		return err
	case open == nil:
		return nil
	case open != json.Delim('{'):
		return errors.New("secrets of contexts: expected an object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var secrets map[string]string
		if err := d.Decode(&secrets); err != nil {
			return err
		}
		*n = n.Put(name.(string), secrets) // a member's name is a string
	}
	_, err := d.Token()
	return err
}
