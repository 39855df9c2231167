package mutants_test

func unlockerSuites() []suite { return nil }
