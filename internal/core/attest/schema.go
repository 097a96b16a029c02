package attest

import (
	"regexp"
	"sync"
	"time"

	"kici/internal/kit/jsontree"
)

func isA(n *jsontree.Node, kind jsontree.Kind) bool { return n != nil && n.Kind == kind }

// text reads a member that must be a text.
func text(n *jsontree.Node, key string, into *string) bool {
	m := n.Member(key)
	if !isA(m, jsontree.Text) {
		return false
	}
	*into = m.Text()
	return true
}

// is tells whether a member is exactly that text.
func is(n *jsontree.Node, key, want string) bool {
	var got string
	return n != nil && text(n, key, &got) && got == want
}

// optional tells whether a member is missing or of a kind.
func optional(n *jsontree.Node, key string, kind jsontree.Kind) bool {
	m := n.Member(key)
	return m == nil || m.Kind == kind
}

// path follows members; nil when one of them is missing.
func path(n *jsontree.Node, keys ...string) *jsontree.Node {
	for _, k := range keys {
		if n == nil {
			return nil
		}
		n = n.Member(k)
	}
	return n
}

// readStatement takes a payload for a statement, or tells that it is none.
func readStatement(payload []byte) (*jsontree.Node, bool) {
	root, err := parse(payload)
	if err != nil || !isA(root, jsontree.Object) || !is(root, "_type", StatementType) || !is(root, "predicateType", PredicateType) {
		return nil, false
	}
	subjects := root.Member("subject")
	if !isA(subjects, jsontree.List) || len(subjects.Items) == 0 {
		return nil, false
	}
	for i := range subjects.Items {
		if !goodSubject(&subjects.Items[i]) {
			return nil, false
		}
	}
	return root, goodBuild(path(root, "predicate", "buildDefinition")) && goodDetails(path(root, "predicate", "runDetails"))
}

func goodSubject(n *jsontree.Node) bool {
	return isA(n, jsontree.Object) && goodDigests(n.Member("digest")) && goodReference(n)
}

// goodReference checks what subjects and dependencies have in common.
func goodReference(n *jsontree.Node) bool {
	for _, key := range []string{"name", "uri", "mediaType"} {
		if !optional(n, key, jsontree.Text) {
			return false
		}
	}
	return optional(n, "annotations", jsontree.Object)
}

func goodDigests(n *jsontree.Node) bool {
	if !isA(n, jsontree.Object) || len(n.Items) == 0 {
		return false
	}
	for i := range n.Items {
		if d := &n.Items[i]; d.Key == "" || d.Kind != jsontree.Text || !hexText().MatchString(d.Text()) {
			return false
		}
	}
	return true
}

func goodBuild(n *jsontree.Node) bool {
	if !is(n, "buildType", BuildType) || !optional(n, "internalParameters", jsontree.Object) || !optional(n, "resolvedDependencies", jsontree.List) {
		return false
	}
	workflow := path(n, "externalParameters", "workflow")
	if !isA(workflow, jsontree.Object) {
		return false
	}
	for _, key := range []string{"repository", "ref", "path"} {
		if !isA(workflow.Member(key), jsontree.Text) {
			return false
		}
	}
	if internal := n.Member("internalParameters"); internal != nil {
		for _, key := range []string{"commit", "runId", "jobId"} {
			if !optional(internal, key, jsontree.Text) {
				return false
			}
		}
	}
	return goodDependencies(n.Member("resolvedDependencies"))
}

func goodDependencies(n *jsontree.Node) bool {
	if n == nil {
		return true
	}
	for i := range n.Items {
		d := &n.Items[i]
		digest := d.Member("digest")
		named := d.Member("name") != nil || d.Member("uri") != nil || digest != nil
		if d.Kind != jsontree.Object || !named || !goodReference(d) || digest != nil && !goodDigests(digest) {
			return false
		}
	}
	return true
}

func goodDetails(n *jsontree.Node) bool {
	builder := path(n, "builder")
	if builder == nil || !isA(builder.Member("id"), jsontree.Text) || !optional(builder, "version", jsontree.Object) || !optional(n, "metadata", jsontree.Object) {
		return false
	}
	if version := builder.Member("version"); version != nil && !(isA(version.Member("kici-orchestrator"), jsontree.Text) && isA(version.Member("kici-agent"), jsontree.Text)) {
		return false
	}
	metadata := n.Member("metadata")
	if metadata == nil {
		return true
	}
	return optional(metadata, "invocationId", jsontree.Text) && goodTime(metadata.Member("startedOn")) && goodTime(metadata.Member("finishedOn"))
}

// timeText is the form of RFC 3339, from which time.Parse lets a text depart in commas and missing zeros.
var timeText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)
})

// goodTime takes a missing time, and one of RFC 3339.
func goodTime(n *jsontree.Node) bool {
	if n == nil {
		return true
	}
	_, err := time.Parse(time.RFC3339, n.Text())
	return err == nil && timeText().MatchString(n.Text())
}
