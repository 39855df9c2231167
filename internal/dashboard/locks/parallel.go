package locks

import (
	"runtime"
	"sync"
)

// minChunk is the number of rows from which a second processor is worth it.
const minChunk = 8192

// chunksOf divides n things among the processors: from and to of each chunk. A chunk has at least smallest things,
// unless it is the only one.
func chunksOf(n, smallest int) [][2]int {
	k := max(1, min(runtime.GOMAXPROCS(0), n/smallest))
	chunks := make([][2]int, k)
	for i := range chunks {
		chunks[i] = [2]int{n * i / k, n * (i + 1) / k}
	}
	return chunks
}

// inChunks does something with n things on all processors and returns what came out for each chunk, in order. A panic
// in a chunk is one of the caller's.
func inChunks[T any](n, smallest int, do func(from, to int) T) []T {
	chunks := chunksOf(n, smallest)
	out := make([]T, len(chunks))
	causes := make([]any, len(chunks))
	var others sync.WaitGroup
	for i := 1; i < len(chunks); i++ {
		others.Go(func() {
			defer func() { causes[i] = recover() }()
			out[i] = do(chunks[i][0], chunks[i][1])
		})
	}
	func() {
		defer func() { causes[0] = recover() }()
		out[0] = do(chunks[0][0], chunks[0][1])
	}()
	others.Wait()
	for _, cause := range causes {
		if cause != nil {
			panic(cause)
		}
	}
	return out
}
