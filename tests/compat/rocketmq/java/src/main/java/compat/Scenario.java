// One scenario: its facts, or an exception that says why not.
package compat;

import java.util.Map;

interface Scenario {
    Map<String, Object> run(Context context) throws Exception;
}
