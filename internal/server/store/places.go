package store

import (
	"context"
	"fmt"
	"strings"
)

// Places writes a form for each of n things, separated by commas, with its parameters numbered from first on.
func Places(n, first int, form string) string {
	each := strings.Count(form, "%d")
	numbers := make([]any, 0, n*each)
	for i := range n * each {
		numbers = append(numbers, first+i)
	}
	return fmt.Sprintf(strings.TrimSuffix(strings.Repeat(form+",", n), ","), numbers...)
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
	form := "(" + strings.TrimSuffix(strings.Repeat("$%d, ", columns), ", ") + ")"
	for len(rows) > 0 {
		n := 1
		if len(rows) >= batch {
			n = batch
		}
		args := make([]any, 0, n*columns)
		for _, row := range rows[:n] {
			args = append(args, row...)
		}
		if err := tx.Do(ctx, head+" "+Places(n, 1, form)+" "+tail, args...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}
