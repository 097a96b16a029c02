package compile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"kici/internal/core/lockfile"
)

// object writes a JSON object whose keys keep the order in which they were added.
type object struct{ fields []field }

func (o *object) add(key string, value any) error {
	raw, err := encode(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	o.fields = append(o.fields, field{key, raw})
	return nil
}

// MarshalJSON implements json.Marshaler.
func (o *object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o.fields {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := encode(f.key)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(f.value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// origin is where a workflow is exported.
type origin struct {
	File   string `json:"file"`
	Export string `json:"export"`
}

// write makes the text of the lock file. It is read back by the server's own loader: what that would refuse must fail
// here, at its author's.
func write(units []*unit, dependencies string) (lock []byte, jobs int, err error) {
	doc := &object{}
	var list []*object
	var source *origin
	for _, u := range units {
		for _, w := range u.workflows {
			at := origin{u.file, w.export}
			if source == nil {
				source = &at
			}
			one, err := w.object(u, at)
			if err != nil {
				return nil, 0, err
			}
			list = append(list, one)
		}
	}
	if err := addAll(doc, field2{"schemaVersion", lockfile.SchemaVersion}, field2{"source", source}, field2{"workflows", list}); err != nil {
		return nil, 0, err
	}
	if err := addHashes(doc, dependencies); err != nil {
		return nil, 0, err
	}
	raw, err := doc.MarshalJSON()
	if err != nil {
		return nil, 0, fmt.Errorf("encode lock file: %w", err)
	}
	file, bad := lockfile.Load(raw, "this repository", "working copy")
	if bad != nil {
		return nil, 0, Diagnostics{{Severity: SeverityError, Code: "E120", Text: "no server would take the lock file: " + bad.Error()}}
	}
	for _, w := range file.Workflows {
		jobs += len(w.Jobs)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return nil, 0, fmt.Errorf("lay out lock file: %w", err)
	}
	return b.Bytes(), jobs, nil
}

type field2 struct {
	key   string
	value any
}

func addAll(o *object, fields ...field2) error {
	for _, f := range fields {
		if err := o.add(f.key, f.value); err != nil {
			return err
		}
	}
	return nil
}

// addHashes puts the hashes of the document and of the package manager's lock file before the workflows.
func addHashes(doc *object, dependencies string) error {
	raw, err := doc.MarshalJSON()
	if err != nil {
		return err
	}
	content, err := lockfile.FileHash(raw)
	if err != nil {
		return fmt.Errorf("hash lock file: %w", err)
	}
	hashes := &object{}
	if err := hashes.add("contentHash", content); err != nil {
		return err
	}
	if dependencies != "" {
		if err := hashes.add("lockfileHash", dependencies); err != nil {
			return err
		}
	}
	doc.fields = slices.Insert(doc.fields, 2, hashes.fields...)
	return nil
}

func (w workflow) object(u *unit, at origin) (*object, error) {
	o := &object{}
	err := addAll(o,
		field2{"name", w.name}, field2{"source", at},
		field2{"contentHash", lockfile.WorkflowHash(u.source, lockfile.CompileSchemaVersion, w.assetDigest)},
		field2{"compileSchemaVersion", lockfile.CompileSchemaVersion},
	)
	if err != nil {
		return nil, err
	}
	for _, f := range w.fields {
		o.fields = append(o.fields, f)
		if f.key == "hashFiles" && len(w.assets) > 0 {
			if err := o.add("resolvedHashFiles", w.assets); err != nil {
				return nil, err
			}
		}
	}
	return o, nil
}
