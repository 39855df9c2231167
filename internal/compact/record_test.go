package compact_test

import (
	"reflect"
	"testing"
	"unsafe"

	"github.com/clustermutex/unlocker/internal/compact"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// fill gives a value that is not zero to what v is made of, as deep as records go.
func fill(t *testing.T, v reflect.Value, n *int) {
	t.Helper()
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(rune('a' + *n%26)))
	case reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]any{"build": *n}))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			f = reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem() // a time has no field to set
			if f.Type().String() != "*time.Location" {
				fill(t, f, n)
			}
		}
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	default:
		t.Fatalf("%v: this test does not know what to put there", v.Type())
	}
}

func TestTheCompactFormKeepsEveryFieldOfARecord(t *testing.T) {
	for i := range reflect.TypeFor[metadata.Record]().NumField() {
		var one metadata.Record // with this field only: none may depend on another
		n := i
		f := reflect.ValueOf(&one).Elem().Field(i)
		fill(t, f, &n)
		if f.IsZero() {
			t.Fatalf("field %d: nothing was put there", i)
		}
		c := compact.New(&one, nil, nil)
		if got := *c.Whole(); !reflect.DeepEqual(got, one) {
			t.Errorf("%+v became %+v", one, got)
		}
	}
}

func TestEachOverwritesTheRecordBefore(t *testing.T) {
	records := []*metadata.Record{{Name: "a", Owner: "x"}, {Name: "b", Misplaced: true}, {Name: "c"}}
	var names []string
	var last *metadata.Record
	for r := range compact.Each(compact.All(records)) {
		if names = append(names, r.Name); len(names) == 3 {
			break
		}
		if last = r; !reflect.DeepEqual(r, records[len(names)-1]) {
			t.Errorf("%+v", r)
		}
	}
	if !reflect.DeepEqual(names, []string{"a", "b", "c"}) || last.Name != "c" {
		t.Error(names, last.Name)
	}
}

func TestRecordsOfOneProcessShareItInACopy(t *testing.T) {
	r := &metadata.Record{Name: "a", Owner: "x"}
	h := compact.HolderOf(r)
	var nothing compact.Nothing
	a := compact.New(r, &h, &nothing)
	b := compact.New(&metadata.Record{Name: "b", Owner: "x"}, &h, &nothing)
	if a.Holder != b.Holder || a.Rest != b.Rest {
		t.Error("two records of one holder, without anything rare, share neither")
	}
	if size := unsafe.Sizeof(a); size > 200 { // with what a view adds the size class of 208 bytes
		t.Errorf("%d bytes", size)
	}
}
