package store

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// memo remembers texts by what they are made of. A program has few of them and needs them for every run; to write one takes
// longer than to find it, and a cache of prepared statements finds a text faster that is the very one it has.
type memo[K comparable] struct {
	mu    sync.Mutex
	texts map[K]string // at most maxStatements
}

// text gives the text of a key, which write writes.
func (m *memo[K]) text(key K, write func(K) string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	text, ok := m.texts[key]
	if ok {
		return text
	}
	if m.texts == nil || len(m.texts) >= maxStatements {
		m.texts = map[K]string{}
	}
	text = write(key)
	m.texts[key] = text
	return text
}

var (
	placesWritten     memo[places]
	insertionsWritten memo[insertion]
)

type places struct {
	n, first int
	form     string
}

// Places writes a form for each of n things, separated by commas, with its parameters numbered from first on.
func Places(n, first int, form string) string {
	return placesWritten.text(places{n, first, form}, places.write)
}

func (p places) write() string {
	each := strings.Count(p.form, "%d")
	numbers := make([]any, 0, p.n*each)
	for i := range p.n * each {
		numbers = append(numbers, p.first+i)
	}
	return fmt.Sprintf(strings.TrimSuffix(strings.Repeat(p.form+",", p.n), ","), numbers...)
}

// batch is how many rows InsertAll writes with one statement. A rest is written row by row, so that there are only two
// texts of each statement to prepare.
const batch = 16

// DeleteAll deletes the rows of many keys. head goes up to the column of the key. As with InsertAll, there are two texts.
func DeleteAll(ctx context.Context, tx *Tx, head string, keys []string) error {
	for len(keys) > 0 {
		n := 1
		if len(keys) >= batch {
			n = batch
		}
		args := make([]any, n)
		for i, key := range keys[:n] {
			args[i] = key
		}
		if err := tx.Do(ctx, head+" IN ("+Places(n, 1, "$%d")+")", args...); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// InsertAll writes rows of as many values each as columns says. head goes up to VALUES, tail follows the rows.
func InsertAll(ctx context.Context, tx *Tx, head string, columns int, tail string, rows [][]any) error {
	for len(rows) > 0 {
		n := 1
		if len(rows) >= batch {
			n = batch
		}
		args := make([]any, 0, n*columns)
		for _, row := range rows[:n] {
			args = append(args, row...)
		}
		if err := tx.Do(ctx, Insertion(head, n, columns, tail), args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// Insertion is the text that writes so many rows of as many values each as columns says, in the words of InsertAll.
func Insertion(head string, rows, columns int, tail string) string {
	return insertionsWritten.text(insertion{head, rows, columns, tail}, insertion.write)
}

type insertion struct {
	head          string
	rows, columns int
	tail          string
}

func (i insertion) write() string {
	form := "(" + strings.TrimSuffix(strings.Repeat("$%d, ", i.columns), ", ") + ")"
	return i.head + " " + Places(i.rows, 1, form) + " " + i.tail
}
