package forge

import (
	"database/sql"
	"encoding/json"
	"fmt"

	lru "github.com/hashicorp/golang-lru/v2"
)

// maxKnown is how many sources' texts are remembered, of each kind. Beyond it the one that was unused for longest is decoded
// anew.
const maxKnown = 1000

// known is what the texts of rows mean, remembered under the texts themselves: the row is read all the same, so what
// somebody changes, here or on another node, is another text. Whoever gets what is remembered shares it with others and
// changes nothing of it.
type known struct {
	documents     *lru.Cache[texts, documents]
	verifications *lru.Cache[sealed, Verification]
	named         *lru.Cache[nameOf, Source] // as ByName last gave them: see Sources.Known
}

// nameOf is what a source's deliveries are sent to.
type nameOf struct{ org, name string }

// sealed is all that the verification of a source is read from.
type sealed struct{ id, method, envelope string }

// texts are the documents of a row as they are stored.
type texts struct {
	strip          string
	allowed, local sql.NullString
}

type documents struct {
	strip, allowed []string
	local          *LocalConfig
}

func newKnown() known {
	return known{newCache[texts, documents](), newCache[sealed, Verification](), newCache[nameOf, Source]()}
}

func newCache[K comparable, V any]() *lru.Cache[K, V] {
	c, err := lru.New[K, V](maxKnown)
	if err != nil {
		panic(err) // only a size below one is refused
	}
	return c
}

func (k known) decode(t texts) (documents, error) {
	if d, ok := k.documents.Get(t); ok {
		return d, nil
	}
	d, err := t.decode()
	if err == nil {
		k.documents.Add(t, d)
	}
	return d, err
}

func (t texts) decode() (d documents, err error) {
	for _, column := range []struct {
		name string
		text sql.NullString
		into any
	}{{"strip_headers", sql.NullString{String: t.strip, Valid: true}, &d.strip}, {"allowed_events", t.allowed, &d.allowed},
		{"local_config", t.local, &d.local}} {
		if !column.text.Valid {
			continue
		}
		if err := json.Unmarshal([]byte(column.text.String), column.into); err != nil {
			return documents{}, fmt.Errorf("%s: %w", column.name, err)
		}
	}
	return d, nil
}
