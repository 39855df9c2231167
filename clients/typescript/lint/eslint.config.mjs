import tseslint from "typescript-eslint";

const node = { from: "package", name: "test", package: "node:test" };

export default tseslint.config(
  { ignores: ["dist", "build", "node_modules", "lint"] },
  ...tseslint.configs.strictTypeChecked,
  ...tseslint.configs.stylisticTypeChecked,
  {
    languageOptions: { parserOptions: { project: "./tsconfig.test.json", tsconfigRootDir: `${import.meta.dirname}/..` } },
    rules: {
      "max-len": ["error", { code: 120, tabWidth: 4 }],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      "@typescript-eslint/prefer-nullish-coalescing": ["error", { ignorePrimitives: { string: true } }],
      "@typescript-eslint/no-floating-promises": ["error", { allowForKnownSafeCalls: [node] }],
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
    },
  },
  { files: ["test/**"], rules: { "@typescript-eslint/require-await": "off" } },
  { files: ["**/*.mjs"], extends: [tseslint.configs.disableTypeChecked] },
);
