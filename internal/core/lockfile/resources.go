package lockfile

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"sync"

	"kici/internal/kit/jsontree"
)

// maxCPUs bounds what a job may ask for.
const maxCPUs = 256

var memoryForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\d+(?:\.\d+)?)\s*([kKmMgG])$`) })

// ParseMemory reads an amount such as 512m or 1.5g in bytes: binary multiples, rounded down.
func ParseMemory(text string) (bytes int64, err error) {
	m := memoryForm().FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("memory %q: expected a number followed by k, m or g, as in 512m", text)
	}
	amount, ok := new(big.Rat).SetString(m[1])
	if !ok {
		return 0, fmt.Errorf("memory %q: not a number", text)
	}
	shift := map[string]int64{"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[strings.ToLower(m[2])]
	amount.Mul(amount, new(big.Rat).SetInt64(shift))
	whole := new(big.Int).Quo(amount.Num(), amount.Denom())
	if !whole.IsInt64() {
		return 0, fmt.Errorf("memory %q: too much", text)
	}
	return whole.Int64(), nil
}

// Amounts are the resources of one kind, 0 for what is not stated.
type Amounts struct {
	CPUs        float64
	MemoryBytes int64
}

// Resources are what a job asks for and what it may use at most.
type Resources struct {
	Requests, Limits Amounts
}

// ParseResources reads a job's resources. Unknown members, amounts out of range and a request above its limit are errors;
// nil is no demand.
func ParseResources(raw []byte) (r Resources, err error) {
	if len(raw) == 0 {
		return r, nil
	}
	n, err := jsontree.Parse(string(raw))
	if err != nil {
		return r, fmt.Errorf("resources: %w", err)
	}
	if n.Kind != jsontree.Object {
		return r, fmt.Errorf("resources: expected an object, found %s", n.Kind)
	}
	for i := range n.Items {
		m := &n.Items[i]
		switch m.Key {
		case "requests":
			r.Requests, err = amounts(m)
		case "limits":
			r.Limits, err = amounts(m)
		default:
			err = fmt.Errorf("resources: unknown member %q; expected requests and limits", m.Key)
		}
		if err != nil {
			return r, err
		}
	}
	return r, r.check()
}

func (r Resources) check() error {
	if r.Limits.CPUs > 0 && r.Requests.CPUs > r.Limits.CPUs {
		return fmt.Errorf("resources: cpus requested (%v) exceed the limit (%v)", r.Requests.CPUs, r.Limits.CPUs)
	}
	if r.Limits.MemoryBytes > 0 && r.Requests.MemoryBytes > r.Limits.MemoryBytes {
		return fmt.Errorf("resources: memory requested (%d bytes) exceeds the limit (%d bytes)",
			r.Requests.MemoryBytes, r.Limits.MemoryBytes)
	}
	return nil
}

func amounts(n *jsontree.Node) (a Amounts, err error) {
	if n.Kind != jsontree.Object {
		return a, fmt.Errorf("resources.%s: expected an object, found %s", n.Key, n.Kind)
	}
	for i := range n.Items {
		m := &n.Items[i]
		where := "resources." + n.Key + "." + m.Key
		switch {
		case m.Key == "cpus" && m.Kind == jsontree.Number:
			if a.CPUs = m.Number(); a.CPUs <= 0 || a.CPUs > maxCPUs {
				return a, fmt.Errorf("%s: %s is not above 0 and at most %d", where, m.Raw, maxCPUs)
			}
		case m.Key == "memory" && m.Kind == jsontree.Text:
			if a.MemoryBytes, err = ParseMemory(m.Text()); err != nil {
				return a, fmt.Errorf("%s: %w", where, err)
			}
		case m.Key == "cpus" || m.Key == "memory":
			return a, fmt.Errorf("%s: %s does not belong here", where, m.Kind)
		default:
			return a, fmt.Errorf("%s: unknown member; expected cpus and memory", where)
		}
	}
	return a, nil
}
