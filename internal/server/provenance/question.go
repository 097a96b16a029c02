package provenance

import (
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"kici/internal/core/attest"
	"kici/internal/kit/jsontree"
)

// readQuestion reads what is to be verified: a bundle, or one with what it is asked about. What cannot be understood as it
// was meant is no question: to pass over a digest that was misspelt would be to vouch for it. Null is as good as nothing.
func readQuestion(body []byte) (q attest.Request, ok bool) {
	q = attest.Request{Bundle: body, Audience: attest.Audience}
	root, err := jsontree.Parse(strings.ToValidUTF8(string(body), "\uFFFD"))
	if err != nil {
		return q, false
	}
	bundle := root.Member("bundle")
	if root.Member("mediaType") != nil || bundle == nil {
		return q, true
	}
	q.Bundle = []byte(bundle.Raw)
	if given(root, "audience") {
		q.Audience = textOf(root, "audience")
	}
	when := "now"
	if given(root, "time") {
		when = textOf(root, "time")
	}
	q.AtIssue = when == "issued"
	if given(root, "digest") {
		d := root.Member("digest")
		q.Digest = &attest.Digest{Algorithm: textOf(d, "alg"), Hex: textOf(d, "hex")}
	}
	return q, q.Audience != "" && (q.AtIssue || when == "now") && (q.Digest == nil || q.Digest.Algorithm != "" && q.Digest.Hex != "")
}

func given(n *jsontree.Node, key string) bool {
	m := n.Member(key)
	return m != nil && m.Kind != jsontree.Null
}

// textOf is the text of a member, "" when it has none.
func textOf(n *jsontree.Node, key string) string {
	if m := n.Member(key); m != nil {
		return m.Text()
	}
	return ""
}

const (
	// maxVisitors is how many addresses are counted at a time. Beyond it the one that was quiet for longest begins anew.
	maxVisitors = 10_000
	visitRate   = 5 // a second
	visitBurst  = 100
)

// visitors bounds how often one address has bundles verified, on this node.
type visitors struct {
	mu    *sync.Mutex
	known *simplelru.LRU[string, *rate.Limiter]
}

func newVisitors() visitors {
	known, err := simplelru.NewLRU[string, *rate.Limiter](maxVisitors, nil)
	if err != nil {
		panic(err) // only a size below one is refused
	}
	return visitors{&sync.Mutex{}, known}
}

func (v visitors) admit(address string, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	l, ok := v.known.Get(address)
	if !ok {
		l = rate.NewLimiter(visitRate, visitBurst)
		v.known.Add(address, l)
	}
	return l.AllowN(now, 1)
}
